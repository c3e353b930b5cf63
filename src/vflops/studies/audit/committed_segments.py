"""The parts of a recorded training that can be trained again, by what its log committed to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from vflops.metrics import time_to_quality
from vflops.record.formats.job_events import Checkpointed, Committed, Finished, JobStarted
from vflops.record.readout.trained_job import Attempt, TrainedJob
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
    """The checkpoint that it starts from; None for the initial weights."""
    commitments: tuple[Committed, ...]
    """The states in between, and at its end."""
    is_end: bool
    """Whether the training ended there."""
    resumed: bool = False
    """Whether an attempt resumed within it, or at its end."""
    started: JobStarted | None = None
    """How the attempt that trained its end was started."""
    candidate: CandidatePart | None = None

    @property
    def steps(self) -> int:
        """Number of steps."""
        return self.last - self.first


def segments_of(job: TrainedJob) -> list[Segment]:
    """Return the segments of a finished training, in order; empty if it did not finish."""
    finished = job.finished
    if finished is None:
        return []
    commitments, resumes = _lineage(job.attempts)
    kept = {item.step: item for item in commitments if isinstance(item, Checkpointed) and item.kept}
    bounds = sorted({0, *(step for step in kept if step < finished.step), finished.step})
    return [
        Segment(
            job=job.record.job,
            first=first,
            last=last,
            start=kept.get(first),
            commitments=tuple(
                item
                for item in commitments
                if first < item.step <= last or (item.step == 0 == first)
            ),
            is_end=last == finished.step,
            resumed=any(first < step <= last for step in resumes),
            started=_started_at(job, last),
        )
        for first, last in pairwise(bounds)
    ]


def last_evaluation(job: TrainedJob) -> Segment | None:
    """Return the evaluation of the trained model; None if its weights were not kept."""
    finished = job.finished
    if finished is None:
        return None
    commitments, _ = _lineage(job.attempts)
    for item in reversed(commitments):
        if isinstance(item, Checkpointed) and item.kept and item.step == finished.step:
            return Segment(
                job.record.job, item.step, item.step, item, (), True, started=job.started
            )
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
                    )
                )
                begun = None
    return candidates


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


def _lineage(attempts: Sequence[Attempt]) -> tuple[list[Committed], list[int]]:
    """Return the commitments that lead to the trained model, and the steps of all resumes.

    What an attempt committed to after the checkpoint from which the next one resumed was lost.
    """
    line: list[Committed] = []
    resumes: list[int] = []
    for number, attempt in enumerate(attempts):
        if number and attempt.has_progress:
            line = [item for item in line if item.step <= attempt.first_step]
            resumes += [attempt.first_step] * (attempt.first_step > 0)
        line += _commitments(attempt)
    return line, resumes


def _commitments(attempt: Attempt) -> Iterator[Committed]:
    for event in attempt.log.events:
        if event.kind == "checkpoint":
            yield event.payload(Checkpointed)
        elif event.kind == "commitment":
            yield event.payload(Committed)
