"""The workers of a search on one time line, whatever nodes they were on."""

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

SPENT = (PHASES[0], "idle", "building", *PHASES[1:])
"""What a worker's time goes to; between two candidates it is idle, or builds."""


def searches(contents: Contents) -> list[list[TrainedJob]]:
    """The workers of each search."""
    groups = groupby(contents.workers, key=lambda job: (job.record.workload, job.record.repeat))
    return [list(jobs) for _, jobs in groups]


def story_of(members: Sequence[TrainedJob]) -> SearchHistory:
    """What the workers' logs say together."""
    timeline = WorkerTimeline(members)
    offsets = [
        [timeline.early_s(each.record.job, place) for place in each.folders] for each in members
    ]
    return SearchHistory([each.logs for each in members], offsets)


def given_up(contents: Contents, members: Sequence[TrainedJob]) -> tuple[LostWorker, ...]:
    """The workers of a search that died too often; none where no other came to its end."""
    told = [event.payload(JobGivenUp) for event in contents.history.events("job-given-up")]
    reasons = {each.job: each for each in told}
    ended = [each.record.job for each in members if contents.history.ended(each.record.job)]
    lost = [each for each in members if each.record.job in reasons and each.record.job not in ended]
    return tuple(_lost(each, reasons[each.record.job]) for each in lost) if ended else ()


def _lost(member: TrainedJob, told: JobGivenUp) -> LostWorker:
    stories = story_of([member]).candidates
    return LostWorker(
        job=told.job,
        attempts=told.attempts,
        reason=told.reason,
        trained=sum(story.state == "trained" for story in stories),
        candidates=tuple(s.begun.candidate for s in stories if s.state == "training"),
    )


def spent(member: TrainedJob) -> dict[str, float]:
    """Seconds of a worker by what they went to, from the start of its processes to its last word.

    The time between its attempts is not in them.
    """
    found = [_spent(attempt) for attempt in member.attempts if attempt.log.events]
    return {name: sum(each[name] for each in found) for name in SPENT}


def _spent(attempt: Attempt) -> dict[str, float]:
    """Its clock knows no idle time: what is between candidates is start-up there.

    Nor does it say what came after the last note: a candidate that was begun was trained.
    """
    events = attempt.log.events
    begins = [event for event in events if event.kind == "candidate"]
    began = next((event for event in events if event.kind == "worker"), events[0])
    building_s = sum(event.payload(CandidateBegun).built_s for event in begins)
    phases = dict(attempt.phases)
    loading_s = began.time_s - attempt.began_s if attempt.began_s is not None else 0.0
    busy_s, free_s = _unnoted(events, began)
    phases["training"] += busy_s
    idle_s = max(phases.pop(PHASES[0]) + free_s - loading_s - building_s, 0.0)
    return {PHASES[0]: loading_s, "idle": idle_s, "building": building_s, **phases}


def _unnoted(events: Sequence[Event], began: Event) -> tuple[float, float]:
    """Seconds after an attempt's last note in which it had a candidate, and in which it had none.

    They go on to its last word: also who waits for nothing more than the end waits.
    """
    noted = [place for place, event in enumerate(events) if event.kind in PROGRESS_EVENTS]
    place = noted[-1] if noted else events.index(began)
    busy_s = free_s = 0.0
    before, busy = events[place], bool(noted)
    for event in events[place + 1 :]:
        if busy:
            busy_s += event.time_s - before.time_s
        else:
            free_s += event.time_s - before.time_s
        before, busy = event, event.kind == "candidate" or (busy and event.kind not in END_EVENTS)
    return busy_s, free_s


class WorkerTimeline(Timeline):
    """The time line of workers: they are at work from their first event to their last.

    A training begins with its first step; a worker that waits for a candidate takes power too.
    """

    def __init__(self, members: Sequence[TrainedJob]) -> None:
        super().__init__(members)
        self._workers = members

    def early_s(self, job: int, place: Path) -> float:
        """How far the clock of an attempt's log is ahead; 0 where that is not known."""
        return self.parts_of(job, place, (0.0, 0.0))[0].offset_s

    @cached_property
    def parts(self) -> dict[str, list[Part]]:
        """What each host did for all attempts, in the order of the workers."""
        found: dict[str, list[Part]] = {}
        for member in self._workers:
            job = member.record.job
            for place, log in zip(member.folders, member.logs, strict=True):
                if len(log.events) > 1:
                    start_s = log.events[0].utc_s - self.early_s(job, place)
                    length_s = log.events[-1].time_s - log.events[0].time_s
                    for part in self.parts_of(job, place, (start_s, start_s + length_s)):
                        found.setdefault(part.host, []).append(part)
        return found
