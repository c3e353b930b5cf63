"""Where a worker of a search stands, from its events as they come."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from vflops.record.formats.job import JobRecord
from vflops.record.formats.job_events import Evaluated, ProgressPoint
from vflops.record.readout.trained_job import PROGRESS_EVENTS
from vflops.workloads.automl.search_events import (
    CandidateBegun,
    CandidateCut,
    CandidateFailed,
    CandidateTrained,
    WorkerBegun,
)


@dataclass
class WorkerProgress:
    """A worker and what it has done, as far as its logs were followed."""

    duration_s: float
    """That it searches for."""
    candidate: str | None = None
    """What it trains; None between two candidates."""
    epoch: float = 0.0
    accuracy: float | None = None
    """Of the candidate's last evaluation."""
    best: float | None = None
    best_candidate: str | None = None
    trained: int = 0
    ops: int = 0
    elapsed_s: float = 0.0
    """Since the worker began, by its last event that tells."""
    _began_s: float = 0.0
    _loaded_s: float | None = None
    _heard_s: float | None = None
    """When it last told how much of its time has passed; None: it has not begun."""
    _begun: CandidateBegun | None = None
    _samples: dict[str, int] = field(default_factory=dict)
    _evaluations: set[tuple[str, float]] = field(default_factory=set)

    def left_s(self) -> float:
        """Of its time, by now."""
        since_s = 0.0 if self._heard_s is None else time.monotonic() - self._heard_s
        return max(self.duration_s - self.elapsed_s - since_s, 0.0)

    def take(self, kind: str, data: dict[str, Any]) -> None:
        """Take in an event; one that cannot be read is the check's matter."""
        with suppress(ValidationError):
            if kind == "worker":
                self._began_s = self.duration_s - WorkerBegun.model_validate(data).left_s
                self._hear(self._began_s)
                self._loaded_s, self._begun, self.candidate = None, None, None
            elif kind == "candidate":
                self._begun = CandidateBegun.model_validate(data)
                self.candidate, self.epoch = self._begun.candidate, 0.0
                self.accuracy = None
            elif kind == "evaluation":
                self._evaluated(Evaluated.model_validate(data))
            elif kind in ("progress", "finished"):
                self._stands(PROGRESS_EVENTS[kind].model_validate(data))
            elif kind == "candidate-trained":
                CandidateTrained.model_validate(data)
                self.trained += 1
                self.candidate = None
            elif kind == "candidate-cut":
                self._count(CandidateCut.model_validate(data).samples)
                self.candidate = None
            elif kind == "candidate-failed":
                failed = CandidateFailed.model_validate(data)
                if failed.candidate == self.candidate:
                    self._count(failed.samples)
                self.candidate = None

    def _stands(self, note: ProgressPoint) -> None:
        self.epoch = note.epoch
        self._count(note.samples)
        if self._loaded_s is None and self._begun is not None:
            # Phases also count what was before the worker began: the loading of torch.
            waited_s = self._begun.waited_s + self._begun.built_s
            self._loaded_s = note.phases.get("start-up", 0.0) - waited_s
        self._hear(self._began_s + sum(note.phases.values()) - (self._loaded_s or 0.0))

    def _evaluated(self, note: Evaluated) -> None:
        self._stands(note)
        self.accuracy = note.quality
        if self._begun is None:
            return
        if self.best is None or note.quality > self.best:
            self.best, self.best_candidate = note.quality, self._begun.candidate
        key = (self._begun.candidate, note.epoch)
        if key not in self._evaluations:
            self._evaluations.add(key)
            self.ops += note.evaluated * self._begun.ops_forward

    def _count(self, samples: int) -> None:
        """Charge the samples that were not charged before."""
        if self._begun is not None:
            done = self._samples.get(self._begun.candidate, 0)
            self.ops += max(samples - done, 0) * self._begun.ops_total
            self._samples[self._begun.candidate] = max(samples, done)

    def _hear(self, elapsed_s: float) -> None:
        self.elapsed_s, self._heard_s = max(elapsed_s, 0.0), time.monotonic()


def observer(record: JobRecord) -> WorkerProgress:
    """Return a new view of the worker that ``record`` describes."""
    return WorkerProgress(record.settings["search"]["duration_s"])
