"""Rules on consistency: run.json, job.json and the logs of a job must agree."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from vflops.config.flatten import differences
from vflops.config.training import CEILING_PRECISIONS
from vflops.errors import UsageError
from vflops.record.files.document import first_fault
from vflops.record.formats.job import Goal, JobRecord
from vflops.record.formats.job_events import JobRearranged, JobStarted
from vflops.record.log.events import Event
from vflops.record.readout.contents import Contents
from vflops.record.readout.trained_job import PROGRESS_EVENTS, TrainedJob
from vflops.results.check.easy_target import MAX_FACTOR, easy_target
from vflops.results.check.locations import job_file
from vflops.results.check.parallelism_rules import parallelism_faults
from vflops.results.check.published_figures import EPOCH_ROUNDING
from vflops.results.check.rule import Outcome
from vflops.results.score.aiperf_table import MAX_ERROR_IN_TEXT
from vflops.results.task.closed_tasks import tasks
from vflops.units import count, integer
from vflops.workloads.automl.settings import AutomlSettings
from vflops.workloads.contract.registry import workload
from vflops.workloads.contract.validated_settings import validated_settings

COMMAND_WORKLOAD = "command"
"""The workload that runs a user's command: steps are unknown, the precision is declared."""

_NONE = Outcome("not applicable", "nothing was trained in this run")


def check_settings(contents: Contents) -> Outcome:
    """Fail unless every job has the settings of the run, and its logs show them in effect."""
    jobs = (*contents.training_jobs, *contents.workers)
    if not jobs:
        return _NONE
    for job in jobs:
        fault = next(_settings_faults(contents, job.record), None)
        if fault:
            return Outcome("fail", fault, job_file(job.record))
        checks = (
            _rearrangement_faults(contents, job),
            _log_faults(job),
            parallelism_faults(contents, job),
        )
        event_fault = next((fault for faults in checks for fault in faults), None)
        if event_fault:
            return Outcome("fail", event_fault[1], event_fault[0].source)
    return Outcome("pass", f"{count(len(jobs), 'job')} with the settings in run.json")


def _settings_faults(contents: Contents, record: JobRecord) -> Iterator[str]:
    """Yield the settings of a job that differ from ``run.json``."""
    run, name = contents.folder.record.settings, record.workload
    if name not in run.workloads:
        yield f"{name} is not a workload in run.json"
        return
    for key, (in_run, in_job) in sorted(differences(run.workloads[name], record.settings).items()):
        yield f"{key} is {in_job}, but {in_run} in run.json"
    train = record.settings.get("train", {})
    if record.ranks != train.get("ranks", 1):
        ranks = f"the job has {count(record.ranks, 'rank')}"
        yield f"{ranks}, but {train.get('ranks', 1)} in its settings"
    models = 1 if record.worker else run.models_of(name)
    bag, bagging = record.bag, run.bagging
    if models != (bag.models if bag else 1):
        planned = count(bag.models if bag else 1, "model")
        yield f"the job is one of {planned}, but {models} in run.json"
    if bag and (bag.bootstrap, bag.twins) != (bagging.bootstrap, bagging.twins):
        yield f"bootstrap {bag.bootstrap}, twins {bag.twins}: run.json differs"


def _rearrangement_faults(contents: Contents, job: TrainedJob) -> Iterator[tuple[Event, str]]:
    """Yield changes of a job's settings between attempts, which make its speed meaningless."""
    for event in contents.history.events("job-rearranged"):
        change = event.payload(JobRearranged)
        if change.job == job.record.job:
            changes = ", ".join(change.changes)
            yield event, f"job {change.job} resumed with changed settings: {changes}"


def _log_faults(job: TrainedJob) -> Iterator[tuple[Event, str]]:
    """Yield events in the logs of a job that contradict its settings."""
    record, train = job.record, job.record.settings.get("train", {})
    is_command = record.workload == COMMAND_WORKLOAD
    # Each candidate of a search has its own batch.
    batch = None if is_command or record.worker else train.get("batch")
    precision = (record.settings if is_command else train).get("precision")
    for event in (event for log in job.logs for event in log.events):
        if event.kind == "job":
            started = event.payload(JobStarted)
            if started.ranks != record.ranks:
                yield (
                    event,
                    f"{integer(started.ranks)} ranks started, but {record.ranks} are configured",
                )
            if batch is not None and started.batch != batch:
                yield (
                    event,
                    f"the batch is {integer(started.batch)}, but {integer(batch)} is configured",
                )
            if precision is not None and started.precision != precision:
                yield event, f"the precision is {started.precision}, but {precision} is configured"
            if started.ceiling_precision != CEILING_PRECISIONS.get(started.precision):
                ceiling = f"a ceiling in {started.ceiling_precision}"
                yield event, f"{ceiling} does not bound training in {started.precision}"
        elif event.kind in PROGRESS_EVENTS and not record.worker:  # other rules check searches
            progress, size = event.payload(PROGRESS_EVENTS[event.kind]), max(record.data.train, 1)
            if batch is not None and progress.samples != progress.step * batch:
                steps = f"{count(progress.step, 'step')} of {integer(batch)}"
                yield event, f"{count(progress.samples, 'sample')} are not {steps}"
            if abs(progress.epoch - progress.samples / size) > EPOCH_ROUNDING:
                samples = f"{count(progress.samples, 'sample')} of {integer(size)}"
                yield event, f"epoch {progress.epoch:g} is not {samples}"


def check_goals(contents: Contents) -> Outcome:
    """Fail unless all jobs of a workload have its goal, and the same ranks and device."""
    jobs = (*contents.training_jobs, *contents.workers)
    if not jobs:
        return _NONE
    first: dict[str, TrainedJob] = {}
    for job in jobs:
        record = job.record
        try:
            expected = workload_goal(record)
        except UsageError as error:  # a workload of a package that is not installed here
            return Outcome("cannot tell", error.message, job_file(record))
        other = first.setdefault(record.workload, job)
        fault = (
            _goal_fault(record.goal, expected)
            or _job_difference(job, other)
            or _easy_target_fault(contents, job)
        )
        if fault:
            return Outcome("fail", fault, job_file(record))
    goals = [f"{name}: {_goal_text(job.record)}" for name, job in first.items()]
    return Outcome("pass", "; ".join(goals))


def _goal_text(record: JobRecord) -> str:
    """Return the quality to reach; that of a search is the error that counts as valid."""
    if record.worker is None:
        return f"{record.goal.quality} {record.goal.target:g}"
    search = record.settings_as(AutomlSettings).search
    return f"error at most {min(search.error, MAX_ERROR_IN_TEXT):g}"


def _easy_target_fault(contents: Contents, job: TrainedJob) -> str | None:
    """Return what is wrong if the target of an open task is far below the quality reached.

    With such a target, any VFLOPS can be had; the target of a closed task is fixed.
    """
    goal, is_open = job.record.goal, contents.once(tasks)[job.record.job].kind == "open"
    if not is_open or not job.evaluations or job.record.worker:  # a search has no quality factor
        return None
    achieved = job.evaluations[-1].evaluated.quality
    easy = easy_target(goal, achieved)
    if easy is None:
        return None
    size = "unbounded" if easy.factor is None else f"{easy.factor:.3g}"
    return (
        f"its own target {goal.target:g} is too easy to be a goal: a quality of {achieved:.4g} "
        f"({goal.quality}) makes the quality factor {size}, and more than {MAX_FACTOR:g} says "
        "nothing about speed; set a target close to what training reaches, such as "
        f"--set target={easy.closer}"
    )


def workload_goal(record: JobRecord) -> dict[str, Any]:
    """Return the quality's name, direction and exponent, and the target if one is configured."""
    spec = workload(record.workload)
    try:
        settings = validated_settings(spec.settings, record.settings).section
    except ValidationError as error:
        raise UsageError(f"settings of {spec.name}: {first_fault(error)}") from error
    target = settings.get("target") or settings.get("synthetic", {}).get("target")
    quality = {
        "quality": spec.quality.name,
        "better": spec.quality.better,
        "exponent": spec.quality.exponent,
    }
    declared = {key: settings[key] for key in quality if key in settings}  # of a user's command
    return {**quality, **declared, **({"target": target} if target is not None else {})}


def _goal_fault(goal: Goal, expected: Mapping[str, Any]) -> str | None:
    for key, value in expected.items():
        if getattr(goal, key) != value:
            what = "quality" if key == "quality" else f"{key} of {goal.quality}"
            return f"the {what} is {getattr(goal, key)}, but the workload defines {value}"
    return None


def _job_difference(job: TrainedJob, other: TrainedJob) -> str | None:
    """Return how a job differs from another job of its workload so that they cannot be combined."""
    facts: Sequence[tuple[str, object, object]] = (
        ("goal", job.record.goal, other.record.goal),
        ("number of ranks", job.record.ranks, other.record.ranks),
        ("device", _device(job), _device(other)),
    )
    for what, value, expected in facts:
        if value != expected and value is not None and expected is not None:
            return f"its {what} differs from job {other.record.job} of {job.record.workload}"
    return None


def _device(job: TrainedJob) -> tuple[str, str] | None:
    return (job.started.device, job.started.device_name) if job.started else None
