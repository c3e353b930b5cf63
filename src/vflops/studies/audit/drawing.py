"""Which parts of a run an audit trains again: some always, the others by the auditor's lot."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from vflops.record.readout.contents import Contents
from vflops.results.evidence.audit_record import Reason
from vflops.studies.audit.committed_segments import (
    Segment,
    candidates_of,
    last_evaluation,
    segments_of,
    target_step,
)


@dataclass(frozen=True)
class ChosenSegment:
    """A part of the run, and why it is audited."""

    segment: Segment
    reason: Reason


@dataclass(frozen=True)
class Lot:
    """All parts of a run, and those that were chosen."""

    parts: tuple[Segment, ...]
    chosen: tuple[ChosenSegment, ...]
    pool: tuple[Segment, ...]
    """The parts that are only audited if they are drawn."""

    @property
    def steps(self) -> int:
        """Number of steps of all parts."""
        return sum(part.steps for part in self.parts)


def draw(contents: Contents, count: int, nonce: str) -> Lot:
    """Choose the parts to audit: those that are always audited, and ``count`` of the others.

    A part is drawn with a probability proportional to its steps, by the random numbers that follow
    from ``nonce``.
    """
    trainings = [(job, segments_of(job)) for job in contents.training_jobs]
    searches = [candidates_of(worker) for worker in contents.workers]
    chosen: dict[tuple[object, ...], ChosenSegment] = {}

    def choose(segment: Segment, reason: Reason) -> None:
        chosen.setdefault(_key(segment), ChosenSegment(segment, reason))

    for job, segments in trainings:
        for segment in segments[:1]:
            choose(segment, "first")
        for segment in segments[-1:]:
            choose(segment, "last")
        reached = target_step(job)
        for segment in segments:
            if reached is not None and _evaluates(segment, reached):
                choose(segment, "target")
        for segment in segments:
            if segment.resumed:
                choose(segment, "resumed")
        evaluation = last_evaluation(job)
        if evaluation is not None:
            choose(evaluation, "last evaluation")
    candidates = [segment for segments in searches for segment in segments]
    for segment in candidates[:1]:
        choose(segment, "first")
    if candidates:
        choose(max(candidates, key=_accuracy), "best candidate")
    parts = [*(segment for _, segments in trainings for segment in segments), *candidates]
    pool = [part for part in parts if part.steps and _key(part) not in chosen]
    for segment in _drawn(pool, count, nonce):
        choose(segment, "drawn")
    return Lot(tuple(parts), tuple(chosen.values()), tuple(pool))


def _evaluates(segment: Segment, step: int) -> bool:
    """Whether training the segment again includes the evaluation after ``step``."""
    return segment.first <= step < segment.last or (segment.is_end and step == segment.last)


def _accuracy(segment: Segment) -> float:
    part = segment.candidate
    return part.trained.accuracy if part is not None and part.trained is not None else -1.0


def _key(segment: Segment) -> tuple[object, ...]:
    candidate = segment.candidate.name if segment.candidate else None
    return segment.job, segment.first, segment.last, candidate


def _drawn(pool: Sequence[Segment], count: int, nonce: str) -> list[Segment]:
    """Return ``count`` segments, without repetition; long ones are more likely."""
    numbers = random.Random(nonce)
    keys = {id(segment): numbers.random() ** (1.0 / segment.steps) for segment in pool}
    return sorted(pool, key=lambda segment: -keys[id(segment)])[:count]
