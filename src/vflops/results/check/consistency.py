"""The rules of what jobs were told: run.json, job.json and the logs say the same, in every part."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from vflops.config.flatten import differences
from vflops.config.training import CEILING_OF
from vflops.errors import UsageError
from vflops.record.files.document import first_fault
from vflops.record.formats.job import Goal, JobRecord
from vflops.record.formats.job_events import JobRearranged, JobStarted
from vflops.record.log.events import Event
from vflops.record.readout.contents import Contents
from vflops.record.readout.trained_job import PROGRESS_EVENTS, TrainedJob
from vflops.results.check.locations import job_file
from vflops.results.check.parallelism_rules import shared_otherwise
from vflops.results.check.published_figures import EPOCH_ROUNDING
from vflops.results.check.rule import Outcome
from vflops.results.score.figure_text import count
from vflops.units import integer
from vflops.workloads.contract.registry import workload

NO_STEPS = "command"
"""The workload whose steps are its own affair; the precision is one that its user states."""

_NONE = Outcome("not applicable", "nothing was trained in this run")


def as_told(contents: Contents) -> Outcome:
    """Every job was told what the run was, and its logs are of a job that was told that."""
    jobs = (*contents.trained, *contents.workers)
    if not jobs:
        return _NONE
    for job in jobs:
        fault = next(_told(contents, job.record), None)
        if fault:
            return Outcome("fail", fault, job_file(job.record))
        ways = (_went_on(contents, job), _did(job), shared_otherwise(contents, job))
        found = next((fault for way in ways for fault in way), None)
        if found:
            return Outcome("fail", found[1], found[0].source)
    return Outcome("pass", f"{count(len(jobs), 'job')}, as run.json has it")


def _told(contents: Contents, record: JobRecord) -> Iterator[str]:
    """What a job was told that ``run.json`` does not say."""
    run, name = contents.folder.record.settings, record.workload
    if name not in run.workloads:
        yield f"{name} is no workload of run.json"
        return
    for key, (ours, theirs) in sorted(differences(run.workloads[name], record.settings).items()):
        yield f"{key} is {theirs}, and {ours} in run.json"
    train = record.settings.get("train", {})
    if record.ranks != train.get("ranks", 1):
        yield f"{integer(record.ranks)} ranks, its settings say {train.get('ranks', 1)}"
    models = 1 if record.worker else run.models_of(name)
    bag, bagging = record.bag, run.bagging
    if models != (bag.models if bag else 1):
        yield f"one of {count(bag.models if bag else 1, 'model')}, run.json says {models}"
    if bag and (bag.bootstrap, bag.twins) != (bagging.bootstrap, bagging.twins):
        yield f"bootstrap {bag.bootstrap}, twins {bag.twins}: run.json says otherwise"


def _went_on(contents: Contents, job: TrainedJob) -> Iterator[tuple[Event, str]]:
    """How a job was arranged anew: then its speed is not that of one arrangement."""
    for event in contents.history.events("job-rearranged"):
        new = event.payload(JobRearranged)
        if new.job == job.record.job:
            yield event, f"job {new.job} went on in another way: {', '.join(new.changes)}"


def _did(job: TrainedJob) -> Iterator[tuple[Event, str]]:
    """What the logs of a job say that is not what it was told."""
    record, train = job.record, job.record.settings.get("train", {})
    own = record.workload == NO_STEPS
    batch = None if own or record.worker else train.get("batch")  # a candidate has one of its own
    precision = (record.settings if own else train).get("precision")
    for event in (event for log in job.logs for event in log.events):
        if event.kind == "job":
            began = event.payload(JobStarted)
            if began.ranks != record.ranks:
                yield event, f"{integer(began.ranks)} ranks began, {record.ranks} were told"
            if batch is not None and began.batch != batch:
                yield event, f"a batch of {integer(began.batch)}, {integer(batch)} was told"
            if precision is not None and began.precision != precision:
                yield event, f"precision {began.precision}, {precision} was told"
            if began.ceiling_precision != CEILING_OF.get(began.precision):
                ceiling = f"a ceiling of {began.ceiling_precision}"
                yield event, f"{ceiling} does not bound a training in {began.precision}"
        elif (
            event.kind in PROGRESS_EVENTS and not record.worker
        ):  # searches have rules of their own
            stands, size = event.payload(PROGRESS_EVENTS[event.kind]), max(record.data.train, 1)
            if batch is not None and stands.samples != stands.step * batch:
                steps = f"{count(stands.step, 'step')} of {integer(batch)}"
                yield event, f"{count(stands.samples, 'sample')} are not {steps}"
            if abs(stands.epoch - stands.samples / size) > EPOCH_ROUNDING:
                samples = f"{count(stands.samples, 'sample')} of {integer(size)}"
                yield event, f"epoch {stands.epoch:g} is not {samples}"


def goal(contents: Contents) -> Outcome:
    """The goal is the workload's own, and all jobs of a workload have one, of one system."""
    jobs = (*contents.trained, *contents.workers)
    if not jobs:
        return _NONE
    first: dict[str, TrainedJob] = {}
    for job in jobs:
        record = job.record
        try:
            wanted = own_goal(record)
        except UsageError as error:  # a workload of a package that is not installed here
            return Outcome("cannot tell", error.message, job_file(record))
        other = first.setdefault(record.workload, job)
        fault = _differs(record.goal, wanted) or _unlike(job, other)
        if fault:
            return Outcome("fail", fault, job_file(record))
    told = [f"{name}: {each.record.goal.quality}" for name, each in first.items()]
    return Outcome("pass", "; ".join(told))


def own_goal(record: JobRecord) -> dict[str, Any]:
    """Name, direction, exponent and, where its settings say it, target of a job's workload."""
    spec, settings = workload(record.workload), record.settings
    try:
        settings = spec.settings.model_validate(settings).model_dump(mode="json")
    except ValidationError as error:
        raise UsageError(f"settings of {spec.name}: {first_fault(error)}") from error
    target = settings.get("target") or settings.get("synthetic", {}).get("target")
    quality = {
        "quality": spec.quality.name,
        "better": spec.quality.better,
        "exponent": spec.quality.exponent,
    }
    stated = {key: settings[key] for key in quality if key in settings}  # a command's own
    return {**quality, **stated, **({"target": target} if target is not None else {})}


def _differs(goal: Goal, wanted: Mapping[str, Any]) -> str | None:
    for key, value in wanted.items():
        if getattr(goal, key) != value:
            what = "quality" if key == "quality" else f"{key} of {goal.quality}"
            return f"the {what} is {getattr(goal, key)}, the workload's own is {value}"
    return None


def _unlike(job: TrainedJob, other: TrainedJob) -> str | None:
    """How a job differs from another of its workload in what makes both one result."""
    facts: Sequence[tuple[str, object, object]] = (
        ("goal", job.record.goal, other.record.goal),
        ("number of ranks", job.record.ranks, other.record.ranks),
        ("device", _device(job), _device(other)),
    )
    for what, own, first in facts:
        if own != first and own is not None and first is not None:
            return f"another {what} than job {other.record.job} of {job.record.workload}"
    return None


def _device(job: TrainedJob) -> tuple[str, str] | None:
    return (job.started.device, job.started.device_name) if job.started else None
