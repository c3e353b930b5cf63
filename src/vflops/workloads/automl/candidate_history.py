"""The state of a worker's candidates, followed through the events that the worker writes.

Everything that reads a worker's log goes through ``CandidateTracker``: the score and the checks,
the live table, a worker that resumes, and the workers that wait for each other's results.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import ValidationError

from vflops.errors import FolderError
from vflops.record.formats.job_events import Evaluated, Finished, ProgressPoint
from vflops.record.readout.trained_job import PROGRESS_EVENTS
from vflops.workloads.automl.search_events import (
    CandidateBegun,
    CandidateCut,
    CandidateFailed,
    CandidateTrained,
    Turn,
)

State = Literal["training", "trained", "failed", "cut"]
Outcome = CandidateTrained | CandidateFailed | CandidateCut
"""The payload of the event that ends a candidate."""

END_EVENTS = ("candidate-trained", "candidate-failed", "candidate-cut")
"""The events that end a candidate; each contains its name."""
_OUTCOMES: dict[str, type[Outcome]] = dict(
    zip(END_EVENTS, (CandidateTrained, CandidateFailed, CandidateCut), strict=True)
)


@dataclass(frozen=True, slots=True)
class HistoryPoint:
    """The progress of a candidate at one time."""

    utc_s: float
    ops: int
    """Operations charged for training and evaluation until then, including an unfinished epoch."""
    epoch: float
    quality: float | None = None
    """The result of the evaluation, if one has just finished."""


@dataclass(slots=True)
class CandidateHistory:
    """One candidate over all attempts of the worker that trained it."""

    begun: CandidateBegun
    """The event with which the first attempt began it."""
    resumed: CandidateBegun
    """The event with which the newest attempt began it."""
    worker: int
    began_s: float = 0.0
    state: State = "training"
    points: list[HistoryPoint] = field(default_factory=list)
    """Empty if the events were read without their times."""
    samples: int = 0
    """Number of samples trained on; samples that a later attempt repeats count once."""
    evaluations: dict[float, int] = field(default_factory=dict)
    """Number of samples evaluated after each epoch; a repeated evaluation counts once."""
    evaluated: int = 0
    """Number of samples in all evaluations."""
    results: list[Evaluated] = field(default_factory=list)
    """The evaluations in the order they were written, repeated ones included."""
    epoch: float = 0.0
    finished: Finished | None = None
    ended_s: float | None = None
    trained: CandidateTrained | None = None
    message: str | None = None
    """Why the candidate failed."""
    tries: int = 0
    """Attempts since the newest checkpoint, or since an attempt that was stopped by request."""

    @property
    def turn(self) -> Turn:
        """The round and worker of the candidate."""
        return Turn.named(self.begun.candidate)

    @property
    def ops(self) -> int:
        """Operations charged for training and evaluation."""
        exact = self.begun.batch_ops
        if exact is not None:
            return exact.of_training(self.samples) + exact.of_evaluation(self.evaluated)
        return self.samples * self.begun.ops_total + self.evaluated * self.begun.ops_forward

    @property
    def last_s(self) -> float:
        """The time at which it ended, or of its last progress if it has not ended."""
        return self.ended_s or (self.points[-1].utc_s if self.points else self.began_s)

    @property
    def curve(self) -> list[tuple[float, float]]:
        """Epoch and accuracy of every evaluation."""
        return [(point.epoch, point.quality) for point in self.points if point.quality is not None]

    def add_progress(self, progress: ProgressPoint, utc_s: float | None) -> None:
        """Charge the samples of a progress event that were not charged before."""
        self.samples = max(self.samples, progress.samples)
        self.epoch = progress.epoch
        quality = None
        if isinstance(progress, Evaluated):
            quality = progress.quality
            self.results.append(progress)
            if progress.epoch not in self.evaluations:
                self.evaluations[progress.epoch] = progress.evaluated
                self.evaluated += progress.evaluated
        elif isinstance(progress, Finished):
            self.finished = progress
        self._add_point(utc_s, quality)

    def end(self, outcome: Outcome, utc_s: float | None) -> None:
        """Set the final state, and charge the steps completed since the last progress."""
        if isinstance(outcome, CandidateTrained):
            self.trained, self.state = outcome, "trained"
        else:
            if isinstance(outcome, CandidateFailed):
                self.message, self.state = outcome.message, "failed"
            else:
                self.state = "cut"
            if outcome.samples > self.samples:
                self.samples = outcome.samples
                self._add_point(utc_s)
        self.ended_s = utc_s

    def _add_point(self, utc_s: float | None, quality: float | None = None) -> None:
        if utc_s is not None:
            self.points.append(HistoryPoint(utc_s, self.ops, self.epoch, quality))


class CandidateTracker:
    """The candidates of one worker, from the events of all its attempts in order.

    An event with an invalid payload is skipped; ``vflops check`` reports it.
    """

    def __init__(self, worker: int = 0) -> None:
        self._worker = worker
        self.candidates: dict[str, CandidateHistory] = {}
        """Candidates that were begun, by name."""
        self.outcomes: dict[str, Outcome] = {}
        """How candidates ended, by name, including those that failed before training began."""
        self.current: CandidateHistory | None = None
        """The candidate in training."""
        self.unfinished: CandidateHistory | None = None
        """The candidate in training, or the one that was when the last attempt died."""
        self.abandoned: set[str] = set()
        """Candidates that the worker has left, whether or not their end could be read."""
        self.ops = 0
        """Operations charged for all candidates."""
        self._last_named: str | None = None

    def take(self, kind: str, data: dict[str, Any], utc_s: float | None = None) -> Outcome | None:
        """Apply an event, and return the outcome if it ended a candidate.

        Without ``utc_s`` no points are recorded.
        """
        self._track_abandoned(kind, data.get("candidate"))
        with suppress(ValidationError, FolderError):
            if kind == "worker":
                self.current = None
            elif kind == "candidate":
                self.current = self.unfinished = None
                self._begin(CandidateBegun.model_validate(data), utc_s)
            elif kind in END_EVENTS:
                self.unfinished = None
                if str(data.get("candidate")) in self.candidates:
                    self.current = None
                return self._end(_OUTCOMES[kind].model_validate(data), utc_s)
            elif kind in PROGRESS_EVENTS and self.current is not None:
                previous_ops = self.current.ops
                self.current.add_progress(PROGRESS_EVENTS[kind].model_validate(data), utc_s)
                self.ops += self.current.ops - previous_ops
            elif kind in ("checkpoint", "stopped") and self.unfinished is not None:
                self.unfinished.tries = 0
        return None

    def _begin(self, begun: CandidateBegun, utc_s: float | None) -> None:
        Turn.named(begun.candidate)  # raises FolderError for an invalid name
        candidate = self.candidates.setdefault(
            begun.candidate, CandidateHistory(begun, begun, self._worker, utc_s or 0.0)
        )
        candidate.resumed = begun
        candidate.tries += 1
        self.current = self.unfinished = candidate

    def _end(self, outcome: Outcome, utc_s: float | None) -> Outcome:
        Turn.named(outcome.candidate)
        self.outcomes[outcome.candidate] = outcome
        candidate = self.candidates.get(outcome.candidate)
        if candidate is not None:
            previous_ops = candidate.ops
            candidate.end(outcome, utc_s)
            self.ops += candidate.ops - previous_ops
        return outcome

    def _track_abandoned(self, kind: str, name: object) -> None:
        """Record which candidate the worker has left, even if other events cannot be read."""
        if kind not in ("candidate", "waiting", *END_EVENTS):
            return
        previous, self._last_named = self._last_named, None
        if previous is not None and previous != name:
            self.abandoned.add(previous)
        # A cut candidate counts as abandoned only once the worker begins another one. Otherwise,
        # when time is up, proposals could be made without a result that a longer search has.
        if kind in ("candidate", "candidate-cut") and isinstance(name, str):
            self._last_named = name
            self.abandoned.discard(name)
