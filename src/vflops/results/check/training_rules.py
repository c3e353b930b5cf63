"""Rules for training jobs: they finished, and nothing in their record is missing or altered."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

from vflops.metrics.summation import sum_in_order
from vflops.record.files.folder_listing import matching_files
from vflops.record.files.read_once import is_file
from vflops.record.formats.job_events import JobPlanned, JobTrained, PowerImported
from vflops.record.formats.node import node_files
from vflops.record.log.events import Event
from vflops.record.readout.contents import Contents
from vflops.record.readout.trained_job import PROGRESS_EVENTS, TrainedJob
from vflops.results.check.locations import event_location, job_file
from vflops.results.check.rule import Outcome
from vflops.results.score.search_score import search_scores
from vflops.results.score.search_text import lost_line
from vflops.results.score.search_workers import lost_workers, searches
from vflops.units import count, integer, seconds

_NONE = Outcome("not applicable", "nothing was trained in this run")
_CLOCK_SHARE, _CLOCK_S = 0.01, 0.1
"""The largest difference between phases and clock: a share of the time, plus seconds."""


def check_finished(contents: Contents) -> Outcome:
    """Fail unless every planned job finished, and its files are unchanged since then.

    A search may lose workers; the evidence then lists what was lost with them.
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
            return Outcome("fail", f"job {job.job} was changed since it was planned", str(path))
        if job.job in lost and job.job not in pinned:
            continue
        if job.job not in pinned:
            return Outcome("fail", f"job {job.job} did not finish", str(path))
        log = contents.folder.attempt_folder(job.job, pinned[job.job].attempt) / "events.jsonl"
        if contents.hash(log) != pinned[job.job].sha256:
            return Outcome("fail", f"the log was changed since job {job.job} finished", str(log))
        telemetry = log.with_name("telemetry.jsonl")
        seen = contents.hash(telemetry) if is_file(telemetry) else None
        if seen != pinned[job.job].telemetry_sha256:
            return Outcome(
                "fail", "the telemetry was changed since the job finished", str(telemetry)
            )
        changed = _changed_file(contents, log.parent, pinned[job.job].files)
        if changed:
            return Outcome(
                "fail", "a file of a node was changed since the job finished", str(changed)
            )
    for trained_job in contents.training_jobs:
        for exhibit in trained_job.exhibits:
            if exhibit.path.is_symlink() or contents.hash(exhibit.path) != exhibit.payload.sha256:
                return Outcome(
                    "fail", "the exhibit was changed since the job wrote it", str(exhibit.path)
                )
    stopped = [search for search in contents.once(search_scores) if search.ending == "stopped"]
    for search in stopped:
        if "ended" in search.aiperf.broken:
            first = job_file(contents.workers[0].record)
            return Outcome("fail", search.aiperf.broken["ended"], first)
    if stopped:
        return Outcome("pass", f"{len(planned)} planned, stopped once the search had converged")
    if not lost:
        return Outcome("pass", f"{len(planned)} planned, all finished")
    finished = f"{len(planned)} planned, {len(planned) - len(lost)} finished"
    return Outcome("pass", "; ".join([finished, *map(lost_line, lost.values())]))


def _changed_file(contents: Contents, folder: Path, pinned: dict[str, str] | None) -> Path | None:
    """Return the first file of a node that was changed, added or removed since it was pinned."""
    if pinned is None:
        return None
    current = {path.name: contents.hash(path) for path in node_files(folder)}
    names = sorted({*pinned, *current})
    changed = [name for name in names if pinned.get(name) != current.get(name)]
    return folder / changed[0] if changed else None


def check_power_logs(contents: Contents) -> Outcome:
    """Fail unless the power logs are exactly those that were imported."""
    events = contents.history.events("power-imported")
    imports = (event.payload(PowerImported) for event in events)
    logged = {power_log.file: power_log.sha256 for power_log in imports}
    current = {
        str(path.relative_to(contents.folder.path)): contents.hash(path)
        for path in matching_files(contents.folder.path / "telemetry", "imported-*.jsonl")
    }
    if not logged and not current:
        return Outcome("not applicable", "no power log was imported")
    for name in sorted({*logged, *current}):
        if logged.get(name) != current.get(name):
            return Outcome("fail", "the power log was changed since it was imported", name)
    return Outcome("pass", f"{count(len(logged), 'power log')}, unchanged since they were imported")


def check_samples(contents: Contents) -> Outcome:
    """Fail unless the number of samples trained on is epochs × data set size."""
    if not contents.training_jobs:
        return _NONE
    total = 0
    for job in contents.training_jobs:
        fault = _samples_fault(job)
        if fault:
            evidence = f"job {job.record.job}: {fault}"
            return Outcome("fail", evidence, event_location(job, "finished"))
        total += job.samples_trained
    if not total:
        return _NONE
    return Outcome("pass", f"{count(total, 'sample')} trained on, whole epochs of the data set")


def check_phase_times(contents: Contents) -> Outcome:
    """Fail unless the phases of every attempt add up to the clock of its events."""
    jobs = (*contents.training_jobs, *contents.workers)
    if not jobs:
        return _NONE
    spans = 0
    for job in jobs:
        for attempt in job.attempts:
            updates = [event for event in attempt.log.events if event.kind in PROGRESS_EVENTS]
            if len(updates) < 2:
                continue
            spans += 1
            decrease = _decreased_phase(updates)
            if decrease:
                return Outcome("fail", decrease[1], decrease[0].source)
            for last in updates[-2:]:
                clock_s = last.time_s - updates[0].time_s
                phases_s = _spent_s(last) - _spent_s(updates[0])
                if abs(phases_s - clock_s) > _CLOCK_SHARE * clock_s + _CLOCK_S:
                    figures = f"phases {seconds(phases_s)}, clock {seconds(clock_s)}"
                    return Outcome("fail", f"the time does not add up: {figures}", last.source)
    if not spans:
        return _NONE
    return Outcome("pass", f"the phases of {count(spans, 'attempt')} add up to the clock")


def _decreased_phase(updates: list[Event]) -> tuple[Event, str] | None:
    """Return the first event in which the time of a phase is less than in the event before."""
    phases = ((event, event.payload(PROGRESS_EVENTS[event.kind]).phases) for event in updates)
    for (_, earlier), (after, later) in pairwise(phases):
        for name, spent_s in earlier.items():
            if later.get(name, 0.0) < spent_s:
                figures = f"{seconds(spent_s)}, then {seconds(later.get(name, 0.0))}"
                return after, f"the time in {name} decreased: {figures}"
    return None


def _samples_fault(job: TrainedJob) -> str | None:
    train = job.record.settings.get("train", {})
    done, epochs = job.finished, train.get("end_epoch") or train.get("epochs")
    if done is None or done.reason == "command" or not epochs:  # a command has no epochs
        return None
    size = job.record.data.train
    expected = epochs * size
    minimum = expected if done.reason == "epochs" else 1  # otherwise it stopped early
    if not minimum <= done.samples < expected + train.get("batch", 1):
        planned = f"{count(epochs, 'epoch')} of {integer(size)}"
        return f"{count(done.samples, 'sample')} are not {planned}"
    return None


def _spent_s(event: Event) -> float:
    return sum_in_order(event.payload(PROGRESS_EVENTS[event.kind]).phases.values())
