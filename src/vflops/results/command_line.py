"""The command line that gives a run its settings."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator

from vflops.config.flatten import differences
from vflops.config.profiles import for_single_workload, for_suite
from vflops.config.settings import MicroSettings, Settings
from vflops.errors import VflopsError
from vflops.record.folder import RunRecord
from vflops.workloads.contract.run_settings import load, profile

_SUITE = "suite"
_IMPLIED = (("count", "micro"), ("micro",), ("count",), ())
"""Sections that a run of one workload derives from its other settings unless they are given."""
_WORD = re.compile("(?!true$|false$|nan$|inf$)[a-z][a-z0-9_/-]*")
"""A text that ``--set`` accepts without quotes."""


def command(record: RunRecord) -> str | None:
    """Return ``vflops run …`` with every setting that differs from the profile.

    None if no command line gives exactly these settings: the command is parsed as a user's would
    be, and returned only if the result equals the record.
    """
    try:
        words = _words(record.workload, record.settings)
    except VflopsError:  # a workload or a setting that this version does not know
        return None
    return shlex.join(words) if words else None


def command_for_epochs(record: RunRecord, workload: str, epochs: int) -> str | None:
    """Return the command that runs one workload of the run for another number of epochs.

    None if there is none, as for settings that do not allow that number.
    """
    settings = record.settings
    try:
        one = settings.model_copy(update={"workloads": {workload: settings.workloads[workload]}})
        longer = load(one, None, [f"train.epochs={epochs}"])
        words = _words(
            workload, for_single_workload(longer) if record.workload == _SUITE else longer
        )
    except VflopsError:
        return None
    return shlex.join(words) if words else None


def _words(workload: str, wanted: Settings) -> list[str] | None:
    names = list(wanted.workloads)
    if workload == "micro":
        return _micro(wanted)
    if not names:
        return None
    one = workload != _SUITE
    base = profile(wanted.profile, names)
    if not one:
        base = for_suite(base)
    base = load(base, None, [])
    changes = dict(_changes(base, wanted, short=one))

    def gives_wanted(assignments: list[str]) -> bool:
        try:
            given = load(base, None, assignments)
        except VflopsError:  # one setting needs another that was left out
            return False
        return (for_single_workload(given) if one else given) == wanted

    for implied in _IMPLIED if one else [()]:
        assignments = [
            f"{key}={text}" for key, text in changes.items() if key.partition(".")[0] not in implied
        ]
        if gives_wanted(assignments):
            for assignment in [*assignments]:  # a setting may follow from another of its section
                fewer = [other for other in assignments if other != assignment]
                assignments = fewer if gives_wanted(fewer) else assignments
            named = [workload] if one else []
            return ["vflops", "run", *named, "--profile", wanted.profile, *_flags(assignments)]
    return None


def _micro(wanted: Settings) -> list[str] | None:
    base = load(profile(wanted.profile), None, ["count.models=[]"])
    micro = wanted.micro
    if base.model_copy(update={"seed": wanted.seed, "micro": _expressible(base, wanted)}) != wanted:
        return None
    usual = base.micro
    words = ["vflops", "micro"]
    words += micro.benchmarks if micro.benchmarks != usual.benchmarks else ()
    words += ["--profile", wanted.profile]
    if micro.budget_s != usual.budget_s:
        words += ["--budget", f"{micro.budget_s:g}"]
    for precision in micro.precisions if micro.precisions != usual.precisions else ():
        words += ["--precision", precision]
    if micro.device != usual.device:
        words += ["--device", micro.device]
    return [*words, *(["--seed", str(wanted.seed)] if wanted.seed != base.seed else [])]


def _expressible(base: Settings, wanted: Settings) -> MicroSettings:
    """Return ``wanted.micro`` without what ``vflops micro`` has no option for."""
    return wanted.micro.model_copy(update={"ranks": base.micro.ranks})


def _flags(assignments: list[str]) -> Iterator[str]:
    for assignment in assignments:
        key, _, value = assignment.partition("=")
        yield from ("--seed", value) if key == "seed" else ("--set", assignment)


def _changes(base: Settings, wanted: Settings, *, short: bool) -> Iterator[tuple[str, str]]:
    """Yield each setting that differs: the name that ``--set`` accepts, and its value in TOML."""
    before, after = (settings.model_dump(mode="json") for settings in (base, wanted))
    for key, (_, value) in differences(before, after).items():
        if value is not None:
            name = key.removeprefix("workloads.")
            if short and name != key:
                name = name.partition(".")[2]
            plain = isinstance(value, str) and _WORD.fullmatch(value)
            yield name, value if plain else json.dumps(value, ensure_ascii=False)
