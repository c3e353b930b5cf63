"""The first lines of ``vflops run``: what will happen, and how long it will take."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from vflops.units import seconds

if TYPE_CHECKING:
    from vflops.cli.run_options import RunOptions

_MAX_COMPARED = 5
"""How many earlier runs are compared with the command, the newest first."""


def opening_lines(chosen: RunOptions) -> list[str]:
    """Return what a run with these options does, and its time as far as it is known.

    They are printed before the framework is imported, which takes seconds.
    """
    from vflops.workloads.contract.registry import suite, workload

    names = [workload(chosen.workload).name] if chosen.workload else suite()
    listed = " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))
    where = f"on {chosen.on}" if chosen.on else "on this machine"
    first = "rehearses" if chosen.rehearse else f"measures the ceilings {where}, trains"
    what = f"{first} {listed}, and writes a report"
    return [f"run   {what}", f"time  {_time(chosen)}"]


def _time(chosen: RunOptions) -> str:
    words = replace(chosen, out=Path("runs")).words()
    earlier = _earlier_s(words, chosen)
    if earlier is not None:
        return f"{seconds(earlier)}, as the last such run in {chosen.out}"
    if chosen.for_ is not None:
        return f"{chosen.for_} for the search, after the ceilings"
    plain = ["vflops", "run", *([chosen.workload] if chosen.workload else [])]
    profiles = [chosen.profile] if chosen.profile else ["laptop", "gpu"]
    if words not in (plain, [*plain, "--profile", chosen.profile]):
        return "the progress shows it once training has begun; vflops plan estimates it"
    of_suite = "for all workloads: " if chosen.workload and profiles != ["tiny"] else ""
    usual = " or ".join(f"{_usual(name)} (profile {name})" for name in profiles)
    return f"{of_suite}{usual}; much longer on a busy machine"


def _usual(profile: str) -> str:
    """Return the usual time of a profile, from its description."""
    from vflops.config.profiles import PROFILES, check_profile_name

    check_profile_name(profile)
    description = (PROFILES[profile].__doc__ or "").splitlines()[0]
    return description.partition(": ")[2].rstrip(".")


def _earlier_s(words: Sequence[str], chosen: RunOptions) -> float | None:
    """Return the duration of the newest complete run of the same command; None without one.

    A command without a profile has the same one on the same machine.
    """
    from vflops.errors import VflopsError
    from vflops.record.folder import RunFolder, newest_first
    from vflops.record.own_runs import is_own
    from vflops.results.command_line import command

    for path in islice(filter(is_own, newest_first(chosen.out)), _MAX_COMPARED):
        try:
            folder = RunFolder.open(path)
            known = set(shlex.split(command(folder.record) or ""))
            history = folder.history(0)
        except VflopsError:  # a damaged run says nothing about the time
            continue
        if chosen.profile is None:
            known -= {"--profile", folder.record.settings.profile}
        if known == set(words) and history.state.complete:
            attempts = [log.events for log in history.jobs[0] if log.events]
            return sum(events[-1].utc_s - events[0].utc_s for events in attempts)
    return None
