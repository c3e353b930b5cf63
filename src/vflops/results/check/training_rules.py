"""Rules for trainings: they finished, and nothing in their record is missing or altered."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

from vflops.record.files.folder_listing import matching_files
from vflops.record.formats.job_events import JobPlanned, JobTrained, PowerImported
from vflops.record.formats.node import node_files
from vflops.record.log.events import Event
from vflops.record.readout.contents import Contents
from vflops.record.readout.trained_job import PROGRESS_EVENTS, TrainedJob
from vflops.results.check.locations import event_location
from vflops.results.check.rule import Outcome
from vflops.results.score.figure_text import count
from vflops.results.score.search_text import lost_line
from vflops.results.score.search_workers import lost_workers, searches
from vflops.units import integer, seconds

_NONE = Outcome("not applicable", "nothing was trained in this run")
_CLOCK_SHARE, _CLOCK_S = 0.01, 0.1
"""The most that phases and clock may differ: a share of the time, plus seconds."""


def check_finished(contents: Contents) -> Outcome:
    """Fail unless every planned job finished, and its files are unchanged since then.

    A search may lose some of its workers: the evidence names what was lost with them.
    """
    planned = [event.payload(JobPlanned) for event in contents.history.events("job-planned")]
    if not planned:
        return _NONE
    ended = [event.payload(JobTrained) for event in contents.history.events("job-trained")]
    pinned = {job.job: job for job in ended}
    lost = {
        worker.job: worker
        for members in searches(contents)
        for worker in lost_workers(contents, members)
    }
    for job in planned:
        path = contents.folder.job_file(job.job)
        if contents.hash(path) != job.sha256:
            return Outcome("fail", "not the job that was planned", str(path))
        if job.job in lost and job.job not in pinned:
            continue
        if job.job not in pinned:
            return Outcome("fail", f"job {job.job} did not finish", str(path))
        log = contents.folder.attempt_folder(job.job, pinned[job.job].attempt) / "events.jsonl"
        if contents.hash(log) != pinned[job.job].sha256:
            return Outcome("fail", "not the log as the job left it", str(log))
        telemetry = log.with_name("telemetry.jsonl")
        seen = contents.hash(telemetry) if telemetry.is_file() else None
        if seen != pinned[job.job].telemetry_sha256:
            return Outcome("fail", "not the telemetry as the job left it", str(telemetry))
        changed = _changed(contents, log.parent, pinned[job.job].files)
        if changed:
            return Outcome("fail", "not the file as a node of the job left it", str(changed))
    for trained_job in contents.trained:
        for exhibit in trained_job.exhibits:
            if contents.hash(exhibit.path) != exhibit.payload.sha256:
                return Outcome("fail", "not the exhibit as the job left it", str(exhibit.path))
    if not lost:
        return Outcome("pass", f"{len(planned)} planned, all finished")
    finished = f"{len(planned)} planned, {len(planned) - len(lost)} finished"
    return Outcome("pass", "; ".join([finished, *map(lost_line, lost.values())]))


def _changed(contents: Contents, folder: Path, pinned: dict[str, str] | None) -> Path | None:
    """Return the first file of a node that was changed, added or removed since it was pinned."""
    if pinned is None:
        return None
    here = {path.name: contents.hash(path) for path in node_files(folder)}
    wrong = sorted(name for name in {*pinned, *here} if pinned.get(name) != here.get(name))
    return folder / wrong[0] if wrong else None


def check_power_logs(contents: Contents) -> Outcome:
    """Fail unless the power logs are exactly those that were imported."""
    events = contents.history.events("power-imported")
    imports = (event.payload(PowerImported) for event in events)
    logged = {power_log.file: power_log.sha256 for power_log in imports}
    here = {
        str(path.relative_to(contents.folder.path)): contents.hash(path)
        for path in matching_files(contents.folder.path / "telemetry", "imported-*.jsonl")
    }
    if not logged and not here:
        return Outcome("not applicable", "no power log was imported")
    for name in sorted({*logged, *here}):
        if logged.get(name) != here.get(name):
            return Outcome("fail", "not the log as it was imported", name)
    return Outcome("pass", f"{count(len(logged), 'power log')}, each as imported")


def check_samples(contents: Contents) -> Outcome:
    """Fail unless the samples trained on are epochs × data set."""
    if not contents.trained:
        return _NONE
    total = 0
    for job in contents.trained:
        fault = _samples(job)
        if fault:
            words = f"job {job.record.job}: {fault}"
            return Outcome("fail", words, event_location(job, "finished"))
        total += job.samples_trained
    if not total:
        return _NONE
    return Outcome("pass", f"{count(total, 'sample')} trained on, whole epochs of the data set")


def check_phase_times(contents: Contents) -> Outcome:
    """Fail unless the phases of every attempt add up to the clock of its events."""
    jobs = (*contents.trained, *contents.workers)
    if not jobs:
        return _NONE
    spans = 0
    for job in jobs:
        for attempt in job.attempts:
            updates = [event for event in attempt.log.events if event.kind in PROGRESS_EVENTS]
            if len(updates) < 2:
                continue
            spans += 1
            fallen = _fallen(updates)
            if fallen:
                return Outcome("fail", fallen[1], fallen[0].source)
            clock_s = updates[-1].time_s - updates[0].time_s
            phases_s = _spent_s(updates[-1]) - _spent_s(updates[0])
            if abs(clock_s - phases_s) > _CLOCK_SHARE * clock_s + _CLOCK_S:
                figures = f"phases {seconds(phases_s)}, clock {seconds(clock_s)}"
                words = f"the time does not add up: {figures}"
                return Outcome("fail", words, updates[-1].source)
    if not spans:
        return _NONE
    return Outcome("pass", f"the phases of {count(spans, 'attempt')} add up to the clock")


def _fallen(updates: list[Event]) -> tuple[Event, str] | None:
    """Return the first event in which a phase has less time than in the previous one."""
    for before, after in pairwise(updates):
        earlier = before.payload(PROGRESS_EVENTS[before.kind]).phases
        later = after.payload(PROGRESS_EVENTS[after.kind]).phases
        for name, spent_s in earlier.items():
            if later.get(name, 0.0) < spent_s:
                figures = f"{seconds(spent_s)}, then {seconds(later.get(name, 0.0))}"
                return after, f"the time in {name} decreased: {figures}"
    return None


def _samples(job: TrainedJob) -> str | None:
    train = job.record.settings.get("train", {})
    done, epochs = job.finished, train.get("end_epoch") or train.get("epochs")
    if done is None or done.reason == "command" or not epochs:  # a command has no epochs
        return None
    size = job.record.data.train
    wanted = epochs * size
    least = wanted if done.reason == "epochs" else 1  # it ended by target or patience
    if not least <= done.samples < wanted + train.get("batch", 1):
        planned = f"{count(epochs, 'epoch')} of {integer(size)}"
        return f"{count(done.samples, 'sample')} are not {planned}"
    return None


def _spent_s(event: Event) -> float:
    return sum(event.payload(PROGRESS_EVENTS[event.kind]).phases.values())
