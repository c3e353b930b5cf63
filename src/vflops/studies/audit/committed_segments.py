"""The parts of a recorded training that can be trained again, by what its log committed to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from vflops.record.formats.job_events import Checkpointed, Committed
from vflops.record.readout.trained_job import Attempt, TrainedJob
from vflops.workloads.automl.search_events import CandidateBegun, CandidateTrained


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
    candidate: CandidateTrained | None = None
    compiled: bool = False
    """For a candidate: whether its steps were compiled."""

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
            return Segment(job.record.job, item.step, item.step, item, (), is_end=True)
    return None


def candidates_of(worker: TrainedJob) -> list[Segment]:
    """Return the candidates that a worker trained to the end, in order."""
    candidates = []
    for attempt in worker.attempts:
        begun: CandidateBegun | None = None
        commitments: list[Committed] = []
        for event in attempt.log.events:
            if event.kind == "candidate":
                begun, commitments = event.payload(CandidateBegun), []
            elif event.kind == "commitment":
                commitments.append(event.payload(Committed))
            elif event.kind == "candidate-trained" and begun is not None:
                trained = event.payload(CandidateTrained)
                last = _last_step(attempt, trained, begun)
                candidates.append(
                    Segment(
                        job=worker.record.job,
                        first=0,
                        last=last,
                        start=None,
                        commitments=tuple(commitments),
                        is_end=True,
                        candidate=trained,
                        compiled=begun.compiled,
                    )
                )
                begun = None
    return candidates


def _last_step(attempt: Attempt, trained: CandidateTrained, begun: CandidateBegun) -> int:
    """Return the last step of a candidate, from the ``finished`` event before its result."""
    step, current = 0, None
    for event in attempt.log.events:
        if event.kind == "candidate":
            current = event.data.get("candidate")
        if event.kind == "finished" and current == trained.candidate == begun.candidate:
            step = int(event.data.get("step", 0))
    return step


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
