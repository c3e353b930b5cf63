"""Reconstruct the command line of a run from its settings."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Sequence

from vflops.config.flatten import differences
from vflops.config.launch import ranks_on_each_node
from vflops.config.profiles import for_single_workload, for_suite
from vflops.config.settings import MicroSettings, Settings
from vflops.errors import VflopsError
from vflops.machine.system.cpu_share import available_cpus
from vflops.record.folder import RunRecord
from vflops.workloads.contract.run_settings import load, profile

_SUITE = "suite"
_IMPLIED = (("count", "micro"), ("micro",), ("count",), ())
"""Combinations of sections that a run of one workload can derive from its other settings."""
_OPTIONS = {
    "seed": "--seed",
    "repeat": "--repeat",
    "models": "--models",
    "train.ranks": "--ranks",
    "search.workers": "--workers",
    "data": "--data",
    "train.framework": "--framework",
    "launch.on": "--on",
    "launch.nodes": "--nodes",
    "launch.container": "--container",
}
"""Options of ``vflops run`` for settings of one workload."""
_SWITCHES = {
    "bagging.waves": "--waves",
    "bagging.twins": "--twins",
    "telemetry.kernels": "--kernels",
    "launch.rehearse": "--rehearse",
}
"""Options without a value, which set these to true."""
_BARE_TEXT = re.compile("(?!true$|false$|nan$|inf$)[a-z][a-z0-9_/-]*")
"""A text that ``--set`` accepts without quotes."""


def command(record: RunRecord) -> str | None:
    """Return ``vflops run …`` with every setting that differs from the profile.

    None if no command line gives exactly these settings. The command is parsed like that of a user
    and returned only if the resulting settings equal the recorded ones.
    """
    return _command(record.workload, record.settings, here=record.on_this_machine)


def command_with(record: RunRecord, workload: str, *assignments: str) -> str | None:
    """Return the command that runs one workload of the run with other settings.

    None if there is no such command, for example if the settings do not allow these.
    """
    settings = record.settings
    try:
        single = settings.model_copy(update={"workloads": {workload: settings.workloads[workload]}})
        changed = load(single, None, assignments)
    except VflopsError:
        return None
    here = record.on_this_machine
    if record.workload == _SUITE:
        changed = for_single_workload(changed, here=here)
    return _command(workload, changed, here=here)


def command_of_rehearsed(record: RunRecord, assignments: Sequence[str] = ()) -> str | None:
    """Return the command of the run that a rehearsal stands for, with these settings as well.

    The number of ranks per node is left out if the nodes have it anyway.
    """
    settings = record.settings
    nodes = settings.launch.nodes or 1
    sizes = {ranks_on_each_node(nodes, *_size(settings, name)) for name in settings.workloads}
    changes: dict[str, object] = {"rehearse": False}
    if settings.launch.ranks_per_node == max(sizes, default=None):
        changes["ranks_per_node"] = None
    real = settings.model_copy(update={"launch": settings.launch.model_copy(update=changes)})
    try:
        real = load(real, None, assignments)
    except VflopsError:
        return None
    line = _command(record.workload, real, here=record.on_this_machine)
    if line is not None and record.on_this_machine and nodes > 1:
        line += " --on slurm"
    return line


def _size(settings: Settings, name: str) -> tuple[int, int]:
    """Return the models or workers of a workload, and the ranks of each."""
    section = settings.workloads[name]
    workers = section.get("search", {}).get("workers")
    return workers or settings.models_of(name), section["train"]["ranks"]


def _command(workload: str, settings: Settings, *, here: bool) -> str | None:
    try:
        arguments = _arguments(workload, settings, here=here)
    except VflopsError:  # a workload or a setting that this version does not know
        return None
    return shlex.join(arguments) if arguments else None


def _arguments(workload: str, wanted: Settings, *, here: bool) -> list[str] | None:
    workloads = list(wanted.workloads)
    if workload == "micro":
        return _micro_arguments(wanted)
    if not workloads:
        return None
    is_single = workload != _SUITE
    base = profile(wanted.profile, workloads)
    if not is_single:
        base = for_suite(base, available_cpus())
    base = load(base, None, [])
    changes = dict(_changes(base, wanted, short_names=is_single))

    def gives_wanted(assignments: list[str]) -> bool:
        try:
            loaded = load(base, None, assignments)
        except VflopsError:  # a setting requires another that was left out
            return False
        return (for_single_workload(loaded, here=here) if is_single else loaded) == wanted

    for implied in _IMPLIED if is_single else [()]:
        assignments = [
            f"{key}={text}" for key, text in changes.items() if key.partition(".")[0] not in implied
        ]
        if gives_wanted(assignments):
            for assignment in [*assignments]:  # a setting may follow from another of its section
                fewer = [other for other in assignments if other != assignment]
                assignments = fewer if gives_wanted(fewer) else assignments
            names = [workload] if is_single else []
            return ["vflops", "run", *names, "--profile", wanted.profile, *_flags(assignments)]
    return None


def _micro_arguments(wanted: Settings) -> list[str] | None:
    base = load(profile(wanted.profile), None, ["count.models=[]"])
    micro = wanted.micro
    if base.model_copy(update={"seed": wanted.seed, "micro": _expressible(base, wanted)}) != wanted:
        return None
    default = base.micro
    arguments = ["vflops", "micro"]
    arguments += micro.benchmarks if micro.benchmarks != default.benchmarks else ()
    arguments += ["--profile", wanted.profile]
    if micro.budget_s != default.budget_s:
        arguments += ["--budget", f"{micro.budget_s:g}"]
    for precision in micro.precisions if micro.precisions != default.precisions else ():
        arguments += ["--precision", precision]
    if micro.device != default.device:
        arguments += ["--device", micro.device]
    return [*arguments, *(["--seed", str(wanted.seed)] if wanted.seed != base.seed else [])]


def _expressible(base: Settings, wanted: Settings) -> MicroSettings:
    """Return ``wanted.micro`` without the settings for which ``vflops micro`` has no option."""
    return wanted.micro.model_copy(update={"ranks": base.micro.ranks})


def _flags(assignments: list[str]) -> Iterator[str]:
    given = dict(assignment.split("=", 1) for assignment in assignments)
    if "models" in given and given.get("bagging.models") == given["models"]:
        del given["bagging.models"]  # --models sets both
    else:
        yield from ("--set", f"models={given.pop('models')}") if "models" in given else ()
    for key, value in given.items():
        if value == "true" and key in _SWITCHES:
            yield _SWITCHES[key]
        elif key in _OPTIONS:
            yield from (_OPTIONS[key], json.loads(value) if value.startswith('"') else value)
        else:
            yield from ("--set", f"{key}={value}")


def _changes(base: Settings, wanted: Settings, *, short_names: bool) -> Iterator[tuple[str, str]]:
    """Yield each setting that differs, as a name for ``--set`` and a value in TOML."""
    before, after = (settings.model_dump(mode="json") for settings in (base, wanted))
    after["workloads"] = json.loads(json.dumps(after["workloads"], sort_keys=True))  # as in files
    for key, (_, value) in differences(before, after).items():
        if value is not None:
            name = key.removeprefix("workloads.")
            if short_names and name != key:
                name = name.partition(".")[2]
            is_bare = isinstance(value, str) and _BARE_TEXT.fullmatch(value)
            yield name, value if is_bare else json.dumps(value, ensure_ascii=False)
