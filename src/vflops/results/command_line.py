"""The command line that gives a run its settings."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator

from vflops.config.flatten import differences
from vflops.config.profiles import for_all, for_one
from vflops.config.settings import MicroSettings, Settings
from vflops.errors import VflopsError
from vflops.record.folder import RunRecord
from vflops.workloads.contract.run_settings import load, profile

_LEFT_TO_FOLLOW = (("count", "micro"), ("micro",), ("count",), ())
"""Sections that a run of one workload makes of its other settings, unless they are set."""
_WORD = re.compile("(?!true$|false$|nan$|inf$)[a-z][a-z0-9_/-]*")
"""A text that ``--set`` takes as one without quotes."""


def command(record: RunRecord) -> str | None:
    """``vflops run …`` with all that differs from the profile; None where no words say it all.

    It is taken through the same steps as a user's words, and shown only if it gives the record.
    """
    try:
        found = _command(record)
    except VflopsError:  # a workload or a setting that this version does not know
        return None
    return shlex.join(found) if found else None


def _command(record: RunRecord) -> list[str] | None:
    wanted, names = record.settings, list(record.settings.workloads)
    if record.workload == "micro":
        return _micro(wanted)
    if not names:
        return None
    one = record.workload != "suite"
    base = profile(wanted.profile, names)
    if not one:
        base = for_all(base)
    base = load(base, None, [])
    words = dict(_words(base, wanted, short=one))

    def gives_it(said: list[str]) -> bool:
        given = load(base, None, said)
        return (for_one(given) if one else given) == wanted

    for left in _LEFT_TO_FOLLOW if one else [()]:
        said = [f"{key}={text}" for key, text in words.items() if key.partition(".")[0] not in left]
        if gives_it(said):
            for each in [*said]:  # a setting may follow from another of its section
                less = [other for other in said if other != each]
                said = less if gives_it(less) else said
            return ["vflops", "run", *_named(record, one), *_flags(said)]
    return None


def _micro(wanted: Settings) -> list[str] | None:
    base = load(profile(wanted.profile), None, ["count.models=[]"])
    micro = wanted.micro
    if base.model_copy(update={"seed": wanted.seed, "micro": _sized(base, wanted)}) != wanted:
        return None
    same = base.micro
    found = ["vflops", "micro", *(micro.benchmarks if micro.benchmarks != same.benchmarks else ())]
    found += ["--profile", wanted.profile]
    if micro.budget_s != same.budget_s:
        found += ["--budget", f"{micro.budget_s:g}"]
    for precision in micro.precisions if micro.precisions != same.precisions else ():
        found += ["--precision", precision]
    if micro.device != same.device:
        found += ["--device", micro.device]
    return [*found, *(["--seed", str(wanted.seed)] if wanted.seed != base.seed else [])]


def _sized(base: Settings, wanted: Settings) -> MicroSettings:
    """The ceilings of ``wanted``, less what ``vflops micro`` has no option for."""
    return wanted.micro.model_copy(update={"ranks": base.micro.ranks})


def _named(record: RunRecord, one: bool) -> list[str]:
    return [*([record.workload] if one else []), "--profile", record.settings.profile]


def _flags(assignments: list[str]) -> Iterator[str]:
    for assignment in assignments:
        key, _, value = assignment.partition("=")
        yield from ("--seed", value) if key == "seed" else ("--set", assignment)


def _words(base: Settings, wanted: Settings, *, short: bool) -> Iterator[tuple[str, str]]:
    """Every setting that differs, by the name that ``--set`` knows, as TOML writes its value."""
    before, after = (settings.model_dump(mode="json") for settings in (base, wanted))
    for key, (_, value) in differences(before, after).items():
        if value is not None:
            name = key.removeprefix("workloads.")
            if short and name != key:
                name = name.partition(".")[2]
            plain = isinstance(value, str) and _WORD.fullmatch(value)
            yield name, value if plain else json.dumps(value, ensure_ascii=False)
