"""Closed and open tasks: a task is closed if a profile of vflops defines exactly this task."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from pydantic import ValidationError

from vflops.config.profiles import for_suite
from vflops.errors import UsageError
from vflops.record.files.document import first_fault
from vflops.record.formats.job import JobRecord
from vflops.record.readout.contents import Contents
from vflops.results.task.definition import (
    REFERENCE,
    TaskDefinition,
    job_definition,
    profile_definition,
)
from vflops.results.task.task import Task
from vflops.workloads.contract import run_settings
from vflops.workloads.contract.registry import workload, workloads
from vflops.workloads.contract.spec import WorkloadSpec

_VFLOPS = "vflops"


def job_task(record: JobRecord, profile: str, data_seed: int | None = None) -> Task:
    """Return the task of a job in a run that is based on ``profile``.

    ``data_seed`` is the seed of synthetic data that follows from the challenge of the run, if any.
    """
    name = record.workload
    try:
        spec, definition = workload(name), job_definition(record, data_seed)
    except UsageError as error:
        return _open(name, None, profile, error.message)
    except ValidationError as error:
        return _open(name, None, profile, f"settings: {first_fault(error)}")
    if not _has_closed_tasks(spec):
        return _open(name, definition, profile, _own_workload(spec))
    closed = _closed_tasks(name)
    for task_name, task in closed.items():
        if task.values == definition.values:
            return Task(workload=name, kind="closed", digest=definition.digest, profile=task_name)
    nearest = closed.get(profile, closed[REFERENCE])
    return _open(name, definition, profile, *_differences(definition, nearest))


def _open(name: str, definition: TaskDefinition | None, profile: str, *differences: str) -> Task:
    digest = definition.digest if definition else None
    return Task(workload=name, kind="open", digest=digest, profile=profile, differences=differences)


def tasks(contents: Contents) -> dict[int, Task]:
    """Return the task of each job of a run, by the number of the job."""
    settings, challenge = contents.folder.record.settings, contents.folder.record.challenge
    data_seed = challenge.data_seed if challenge is not None else None
    jobs = (*contents.training_jobs, *contents.workers)
    by_definition: dict[tuple[str, ...], Task] = {}
    found: dict[int, Task] = {}
    for record in (job.record for job in jobs):
        key = _definition_key(record)
        if key not in by_definition:
            task = job_task(record, settings.profile, data_seed)
            by_definition[key] = _in_waves(task) if settings.bagging.waves else task
        found[record.job] = by_definition[key]
    return found


def _definition_key(record: JobRecord) -> tuple[str, ...]:
    """Return what the task of a job depends on: the models of an ensemble share one task."""
    bag = record.bag
    parts = (record.settings, record.data.model_dump(), record.goal.model_dump())
    return (record.workload, *map(repr, parts), repr(bag and (bag.bootstrap, bag.twins)))


def _in_waves(task: Task) -> Task:
    """Return the task of models that take turns: more of them take longer, not more hardware."""
    differences = (*task.differences, "models in waves instead of at the same time")
    return task.model_copy(update={"kind": "open", "differences": differences})


def closed_tasks() -> dict[tuple[str, str], TaskDefinition]:
    """Return all closed tasks, by workload and profile."""
    return {
        (name, profile): definition
        for name, spec in workloads().items()
        if _has_closed_tasks(spec)
        for profile, definition in _closed_tasks(name).items()
    }


def _has_closed_tasks(spec: WorkloadSpec) -> bool:
    return spec.in_suite and spec.origin == _VFLOPS


def _own_workload(spec: WorkloadSpec) -> str:
    if spec.origin != _VFLOPS:
        return f"the workload {spec.name} of the package {spec.origin}, not of vflops"
    return "your own training script, whose task no profile defines"


@cache
def _closed_tasks(name: str) -> dict[str, TaskDefinition]:
    """Return the tasks of a workload's profiles, and of the suite where its task differs."""
    spec, found = workload(name), {}
    for profile in spec.profiles:
        found[profile] = profile_definition(spec, profile, spec.profile(profile))
    for profile in spec.profiles:
        suite = for_suite(run_settings.profile(profile, [name]), cpus=1)
        in_suite = profile_definition(spec, profile, run_settings.workload_settings(suite)[name])
        if in_suite.values != found[profile].values:
            found[f"{profile}, in the suite"] = in_suite
    return found


def _differences(definition: TaskDefinition, closed: TaskDefinition) -> Iterator[str]:
    """Yield the differences as text; values that only one definition has follow from others."""
    for name, expected in closed.values.items():
        if name in definition.values and definition.values[name] != expected:
            value = definition.values[name]
            what = "" if name == "data" else f"{name} "
            yield f"{what}{_text(value)} instead of {_text(expected)}"


def _text(value: object) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    return "none" if value is None else str(value)
