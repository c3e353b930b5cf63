"""The settings of a reference's task: as changes of a profile, and compared with those of a run."""

from __future__ import annotations

import json
from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Any

from vflops.config.flatten import flatten
from vflops.config.settings import Settings
from vflops.errors import UsageError, VflopsError
from vflops.studies.accept import closed_task
from vflops.studies.accept.reference import Task
from vflops.studies.compare.run_view import RunView
from vflops.workloads.contract.registry import suite, workload
from vflops.workloads.contract.run_settings import load, profile

_NOT_PART = ("seed", "repeat", "launch.*", "telemetry.*", "workloads.*.data")
"""Settings that do not define the task: where it runs, how often, and paths."""
_BESIDE_TRAINING = ("count.*", "micro.*")
"""What a run measures besides training; a reference written by hand does not fix it."""
_SIZE = ("bagging.models", "workloads.*.models")
"""Settings that depend on the number of nodes if the task fills them."""


def task_settings(task: Task) -> Settings:
    """Return the settings of a task, or raise ``UsageError`` if they are not valid."""
    names = suite() if task.workload == "suite" else [workload(task.workload).name]
    return load(profile(task.profile, names), None, task.settings)


def task_of(run: RunView) -> Task:
    """Return the task of a run: its profile, and all settings that differ from the profile."""
    settings = run.record.settings
    names = list(settings.workloads)
    base = _flat(profile(settings.profile, names))
    changes = [
        f"{key.removeprefix('workloads.')}={json.dumps(value)}"
        for key, value in _flat(settings).items()
        if key in base and value != base[key] and value is not None and not _matches(key, _NOT_PART)
    ]
    states = {name: closed_task.task_state(run.score, name) for name in names}
    task = Task(
        workload=run.record.workload,
        profile=settings.profile,
        settings=tuple(changes),
        data=run.data,
        definition={name: state.digest for name, state in states.items() if state and state.digest},
    )
    try:
        left = list(differing_settings(task, settings))
    except VflopsError as error:
        left = [error.message]
    if left:
        raise UsageError(
            f"the settings of {run.id} cannot be written as changes of the profile: {left[0]}",
            hint="run the workload with a profile of this version of vflops",
        )
    return task


def differing_settings(task: Task, settings: Settings, *, by_hand: bool = False) -> Iterator[str]:
    """Yield the settings of a run that differ from those of the task, as text.

    If the task was written ``by_hand``, not from runs, how ceilings are measured may differ.
    """
    ignored = (*_NOT_PART, *(_SIZE if task.fill_nodes else ()))
    ignored += _BESIDE_TRAINING if by_hand else ()
    expected, actual = _flat(task_settings(task)), _flat(settings)
    if settings.profile != task.profile:
        yield f"profile is {settings.profile}, and {task.profile} in the reference"
    for key, value in expected.items():
        if key in actual and actual[key] != value and not _matches(key, ignored):
            name = key.removeprefix("workloads.")
            yield f"{name} is {actual[key]}, and {value} in the reference"


def _matches(key: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(key, pattern) for pattern in patterns)


def _flat(settings: Settings) -> dict[str, Any]:
    flat = flatten(settings.model_dump(mode="json"))
    return {key: value for key, value in flat.items() if key != "profile"}
