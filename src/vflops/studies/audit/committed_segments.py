"""The parts of a recorded training that can be trained again, by what its log committed to."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from vflops.metrics import time_to_quality
from vflops.record.formats.job_events import Checkpointed, Committed, Finished, JobStarted
from vflops.record.readout.commitment_lineage import lineage
from vflops.record.readout.trained_job import TrainedJob
from vflops.studies.audit.part_times import TimedSteps, TimePoint, recorded_points, timed_steps
from vflops.workloads.automl.search_events import (
    CandidateBegun,
    CandidateCut,
    CandidateFailed,
    CandidateTrained,
)


@dataclass(frozen=True)
class CandidatePart:
    """The candidate of a search that a segment belongs to."""

    begun: CandidateBegun
    trained: CandidateTrained | None
    """Its result; None if it failed or was cut off, although its operations count."""

    @property
    def name(self) -> str:
        """The name of the candidate."""
        return self.begun.candidate


@dataclass(frozen=True)
class Segment:
    """A part of a recorded training, from one state that the log committed to up to another."""

    job: int
    first: int
    last: int
    start: Checkpointed | None
    """The checkpoint that it starts from; None for the initial weights, or if the log has none."""
    commitments: tuple[Committed, ...]
    """The states in between, and at its end."""
    is_end: bool
    """Whether the training ended there."""
    resumed: bool = False
    """Whether an attempt resumed within it, or at its end."""
    started: JobStarted | None = None
    """How the attempt that trained its end was started."""
    candidate: CandidatePart | None = None
    timed: TimedSteps | None = None
    """How long its steps took by the log; None if the log does not say so."""

    @property
    def steps(self) -> int:
        """Number of steps."""
        return self.last - self.first


def segments_of(job: TrainedJob) -> list[Segment]:
    """Return the segments of a finished training, in order; empty if it did not finish.

    They follow from the settings, whatever checkpoints the log says were kept.
    """
    finished = job.finished
    if finished is None:
        return []
    states, resumes = lineage(job.attempts)
    kept = {item.kept.step: item.kept for item in states if item.kept is not None}
    bounds = sorted({0, *job.kept_steps, finished.step})
    batch = job.started.batch if job.started is not None else 1
    return [
        Segment(
            job=job.record.job,
            first=first,
            last=last,
            start=kept.get(first),
            commitments=tuple(
                item.committed
                for item in states
                if first < item.committed.step <= last or (item.committed.step == 0 == first)
            ),
            is_end=last == finished.step,
            resumed=any(first < step <= last for step in resumes),
            started=_started_at(job, last),
            timed=timed_steps(recorded_points(states, finished, first, last), batch),
        )
        for first, last in pairwise(bounds)
    ]


def last_evaluation(job: TrainedJob) -> Segment | None:
    """Return the evaluation of the trained model; None if its weights were not kept."""
    finished = job.finished
    if finished is None:
        return None
    states, _ = lineage(job.attempts)
    step = finished.step
    for start in (item.kept for item in reversed(states)):
        if start is not None and start.step == step:
            return Segment(job.record.job, step, step, start, (), True, started=job.started)
    return None


def target_step(job: TrainedJob) -> int | None:
    """Return the step of the first evaluation that reached the target; None if none did."""
    goal = job.record.goal
    for timed in job.evaluations:
        quality = timed.evaluated.quality
        if time_to_quality([1.0], [quality], target=goal.target, better=goal.better) is not None:
            return timed.evaluated.step
    return None


def candidates_of(worker: TrainedJob) -> list[Segment]:
    """Return the candidates of a worker whose operations count, in order."""
    candidates: list[Segment] = []
    for attempt in worker.attempts:
        begun: CandidateBegun | None = None
        finished: Finished | None = None
        commitments: list[Committed] = []
        started: JobStarted | None = None
        for event in attempt.log.events:
            if event.kind == "job":
                started = event.payload(JobStarted)
            elif event.kind == "candidate":
                begun, finished, commitments = event.payload(CandidateBegun), None, []
            elif event.kind == "commitment":
                commitments.append(event.payload(Committed))
            elif event.kind == "finished":
                finished = event.payload(Finished)
            elif begun is not None and event.kind in _OUTCOMES:
                outcome = event.payload(_OUTCOMES[event.kind])
                trained = outcome if isinstance(outcome, CandidateTrained) else None
                if isinstance(outcome, CandidateTrained):
                    last = finished.step if finished is not None else 0
                else:
                    last = outcome.samples // max(begun.batch, 1)
                candidates.append(
                    Segment(
                        job=worker.record.job,
                        first=0,
                        last=last,
                        start=None,
                        commitments=tuple(item for item in commitments if item.step <= last),
                        is_end=trained is not None,
                        started=started,
                        candidate=CandidatePart(begun, trained),
                        timed=timed_steps(
                            _points(commitments, finished, last), max(begun.batch, 1)
                        ),
                    )
                )
                begun = None
    return candidates


def _points(commitments: list[Committed], finished: Finished | None, last: int) -> list[TimePoint]:
    """Return the times of a candidate, whose worker trained others before it."""
    points = [TimePoint.of(0, item) for item in commitments if item.phases]
    points += [TimePoint.of(0, finished)] if finished is not None else []
    return [point for point in points if point.step <= last]


_OUTCOMES: dict[str, type[CandidateTrained | CandidateCut | CandidateFailed]] = {
    "candidate-trained": CandidateTrained,
    "candidate-cut": CandidateCut,
    "candidate-failed": CandidateFailed,
}


def _started_at(job: TrainedJob, step: int) -> JobStarted | None:
    """Return how the attempt was started whose states after ``step`` count."""
    found: JobStarted | None = None
    for attempt in job.attempts:
        if not attempt.has_progress or (found is not None and attempt.first_step >= step):
            continue
        events = [event for event in attempt.log.events if event.kind == "job"]
        found = events[0].payload(JobStarted) if events else found
    return found
