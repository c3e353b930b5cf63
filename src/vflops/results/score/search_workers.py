"""The workers of a search: their common timeline, and how they spent their time."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import groupby
from pathlib import Path

from vflops.metrics.summation import sum_in_order
from vflops.record.formats.job_events import PHASES, JobGivenUp
from vflops.record.log.events import Event, Log
from vflops.record.readout.contents import Contents
from vflops.record.readout.timeline import Part, Timeline
from vflops.record.readout.trained_job import PROGRESS_EVENTS, Attempt, TrainedJob
from vflops.results.score.score_file import LostWorker, SearchEnding
from vflops.workloads.automl.candidate_history import END_EVENTS
from vflops.workloads.automl.search_events import CandidateBegun
from vflops.workloads.automl.search_history import SearchHistory

ACTIVITIES = (PHASES[0], "idle", "building", *PHASES[1:])
"""The activities of a worker. Between two candidates it is idle or builds a network."""


def searches(contents: Contents) -> list[list[TrainedJob]]:
    """Return the workers of each search."""
    groups = groupby(contents.workers, key=lambda job: (job.record.workload, job.record.repeat))
    return [list(jobs) for _, jobs in groups]


def search_history(members: Sequence[TrainedJob]) -> SearchHistory:
    """Return the combined history from the logs of the workers."""
    timeline = WorkerTimeline(members)
    offsets = [
        [timeline.ahead_s(log, folder) for log, folder in zip(job.logs, job.folders, strict=True)]
        for job in members
    ]
    return SearchHistory([job.logs for job in members], offsets)


def lost_workers(contents: Contents, members: Sequence[TrainedJob]) -> tuple[LostWorker, ...]:
    """Return the workers of a search that failed too often; empty unless another one went on."""
    events = [event.payload(JobGivenUp) for event in contents.history.events("job-given-up")]
    reasons = {event.job: event for event in events}
    ended = [job.record.job for job in members if _last_event(job) in ("end", "stopped")]
    lost = [job for job in members if job.record.job in reasons and job.record.job not in ended]
    return tuple(_lost_worker(job, reasons[job.record.job]) for job in lost) if ended else ()


def _lost_worker(member: TrainedJob, event: JobGivenUp) -> LostWorker:
    histories = search_history([member]).candidates
    return LostWorker(
        job=event.job,
        attempts=event.attempts,
        reason=event.reason,
        trained=sum(history.state == "trained" for history in histories),
        candidates=tuple(s.begun.candidate for s in histories if s.state == "training"),
    )


def search_ending(contents: Contents, members: Sequence[TrainedJob]) -> SearchEnding | None:
    """Return how a search ended; None if it is in progress or its workers did not end in order.

    The other jobs of its run may be unfinished.
    """
    lost = {worker.job for worker in lost_workers(contents, members)}
    last = {_last_event(job) for job in members if job.record.job not in lost}
    if "stopped" in last and last <= {"stopped", "end"} and not contents.in_progress:
        return "stopped"
    if not contents.state.complete and last != {"end"}:
        return None
    return "converged" if search_history(members).converged_end else "planned"


def _last_event(member: TrainedJob) -> str | None:
    return member.logs[-1].events[-1].kind if member.logs and member.logs[-1].events else None


def time_by_activity(member: TrainedJob) -> dict[str, float]:
    """Return the seconds of a worker by activity, from the start of its process to its last event.

    The time between its attempts is not included.
    """
    attempts = [_attempt_times(attempt) for attempt in member.attempts if attempt.log.events]
    return {name: sum_in_order(times_s[name] for times_s in attempts) for name in ACTIVITIES}


def _attempt_times(attempt: Attempt) -> dict[str, float]:
    """Return the seconds of one attempt by activity.

    The phases of a log have no idle time: they count the time between candidates as start-up. They
    end with the last progress event; after it, a started candidate counts as training.
    """
    events = attempt.log.events
    candidates = [event for event in events if event.kind == "candidate"]
    start = next((event for event in events if event.kind == "worker"), events[0])
    building_s = sum_in_order(event.payload(CandidateBegun).built_s for event in candidates)
    phases = dict(attempt.phases)
    loading_s = start.time_s - attempt.began_s if attempt.began_s is not None else 0.0
    busy_s, free_s = _after_last_progress(events, start)
    phases["training"] += busy_s
    idle_s = max(phases.pop(PHASES[0]) + free_s - loading_s - building_s, 0.0)
    return {PHASES[0]: loading_s, "idle": idle_s, "building": building_s, **phases}


def _after_last_progress(events: Sequence[Event], start: Event) -> tuple[float, float]:
    """Return the seconds after the last progress event with a candidate, and without one.

    They include the wait for the end of the search and end with the last event.
    """
    progress = [index for index, event in enumerate(events) if event.kind in PROGRESS_EVENTS]
    last = progress[-1] if progress else events.index(start)
    busy_s = free_s = 0.0
    before, busy = events[last], bool(progress)
    for event in events[last + 1 :]:
        if busy:
            busy_s += event.time_s - before.time_s
        else:
            free_s += event.time_s - before.time_s
        before, busy = event, event.kind == "candidate" or (busy and event.kind not in END_EVENTS)
    return busy_s, free_s


class WorkerTimeline(Timeline):
    """The timeline of workers, whose parts last from the first event to the last.

    For other jobs, parts begin with the first step. A worker that waits for a candidate draws power
    too.
    """

    def __init__(self, members: Sequence[TrainedJob]) -> None:
        super().__init__(members)
        self._workers = members

    def ahead_s(self, log: Log, folder: Path) -> float:
        """Return how far the wall clock was ahead at the first event; 0 if not known."""
        node = self._writer(folder)
        if node is None or not log.events:
            return 0.0
        if self.zero_s(node) is None:
            return self.offset_s(node) or 0.0
        return log.events[0].utc_s - self.event_s(log.events[0], folder)

    @cached_property
    def parts(self) -> dict[str, list[Part]]:
        """The parts of all attempts by host, in the order of the workers."""
        by_host: dict[str, list[Part]] = {}
        for member in self._workers:
            job = member.record.job
            for folder, log in zip(member.folders, member.logs, strict=True):
                if len(log.events) > 1:
                    start_s = self.event_s(log.events[0], folder)
                    length_s = log.events[-1].time_s - log.events[0].time_s
                    for part in self.parts_of(job, folder, (start_s, start_s + length_s)):
                        by_host.setdefault(part.host, []).append(part)
        return by_host
