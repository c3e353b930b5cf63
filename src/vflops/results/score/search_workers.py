"""The workers of a search on one timeline, and how they spent their time."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import groupby
from pathlib import Path

from vflops.record.formats.job_events import PHASES, JobGivenUp
from vflops.record.log.events import Event
from vflops.record.readout.contents import Contents
from vflops.record.readout.timeline import Part, Timeline
from vflops.record.readout.trained_job import PROGRESS_EVENTS, Attempt, TrainedJob
from vflops.results.score.score_file import LostWorker
from vflops.workloads.automl.candidate_history import END_EVENTS
from vflops.workloads.automl.search_events import CandidateBegun
from vflops.workloads.automl.search_history import SearchHistory

ACTIVITIES = (PHASES[0], "idle", "building", *PHASES[1:])
"""How a worker spends its time; between two candidates it is idle or builds."""


def searches(contents: Contents) -> list[list[TrainedJob]]:
    """Return the workers of each search."""
    groups = groupby(contents.workers, key=lambda job: (job.record.workload, job.record.repeat))
    return [list(jobs) for _, jobs in groups]


def search_history(members: Sequence[TrainedJob]) -> SearchHistory:
    """Return the combined history from the logs of the workers."""
    timeline = WorkerTimeline(members)
    offsets = [
        [timeline.early_s(job.record.job, folder) for folder in job.folders] for job in members
    ]
    return SearchHistory([job.logs for job in members], offsets)


def lost_workers(contents: Contents, members: Sequence[TrainedJob]) -> tuple[LostWorker, ...]:
    """Return the workers of a search that died too often; none unless another finished."""
    events = [event.payload(JobGivenUp) for event in contents.history.events("job-given-up")]
    reasons = {event.job: event for event in events}
    ended = [job.record.job for job in members if contents.history.ended(job.record.job)]
    lost = [job for job in members if job.record.job in reasons and job.record.job not in ended]
    return tuple(_lost(job, reasons[job.record.job]) for job in lost) if ended else ()


def _lost(member: TrainedJob, event: JobGivenUp) -> LostWorker:
    histories = search_history([member]).candidates
    return LostWorker(
        job=event.job,
        attempts=event.attempts,
        reason=event.reason,
        trained=sum(history.state == "trained" for history in histories),
        candidates=tuple(s.begun.candidate for s in histories if s.state == "training"),
    )


def time_by_activity(member: TrainedJob) -> dict[str, float]:
    """Return the seconds of a worker by activity, from process start to its last event.

    The time between its attempts is not included.
    """
    attempts = [_spent(attempt) for attempt in member.attempts if attempt.log.events]
    return {name: sum(times_s[name] for times_s in attempts) for name in ACTIVITIES}


def _spent(attempt: Attempt) -> dict[str, float]:
    """Return the seconds of one attempt by activity.

    The phases of a log have no idle time: the time between candidates is start-up there. They end
    with the last progress event: after it, a started candidate counts as training.
    """
    events = attempt.log.events
    begins = [event for event in events if event.kind == "candidate"]
    began = next((event for event in events if event.kind == "worker"), events[0])
    building_s = sum(event.payload(CandidateBegun).built_s for event in begins)
    phases = dict(attempt.phases)
    loading_s = began.time_s - attempt.began_s if attempt.began_s is not None else 0.0
    busy_s, free_s = _after_last_progress(events, began)
    phases["training"] += busy_s
    idle_s = max(phases.pop(PHASES[0]) + free_s - loading_s - building_s, 0.0)
    return {PHASES[0]: loading_s, "idle": idle_s, "building": building_s, **phases}


def _after_last_progress(events: Sequence[Event], began: Event) -> tuple[float, float]:
    """Return the seconds after the last progress event with a candidate, and without one.

    They include the wait for the end of the search, up to the last event.
    """
    progress = [index for index, event in enumerate(events) if event.kind in PROGRESS_EVENTS]
    last = progress[-1] if progress else events.index(began)
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
    """The timeline of workers, which count from their first event to their last.

    A training counts from its first step; a worker that waits for a candidate draws power too.
    """

    def __init__(self, members: Sequence[TrainedJob]) -> None:
        super().__init__(members)
        self._workers = members

    def early_s(self, job: int, folder: Path) -> float:
        """Return how far the clock of an attempt is ahead; 0 if that is not known."""
        return self.parts_of(job, folder, (0.0, 0.0))[0].offset_s

    @cached_property
    def parts(self) -> dict[str, list[Part]]:
        """The parts of all attempts by host, in the order of the workers."""
        by_host: dict[str, list[Part]] = {}
        for member in self._workers:
            job = member.record.job
            for folder, log in zip(member.folders, member.logs, strict=True):
                if len(log.events) > 1:
                    start_s = log.events[0].utc_s - self.early_s(job, folder)
                    length_s = log.events[-1].time_s - log.events[0].time_s
                    for part in self.parts_of(job, folder, (start_s, start_s + length_s)):
                        by_host.setdefault(part.host, []).append(part)
        return by_host
