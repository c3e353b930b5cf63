"""The progress of a worker for the live table, from its events as they arrive."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from vflops.record.formats.job import JobRecord
from vflops.record.formats.job_events import Evaluated, ProgressPoint
from vflops.record.readout.trained_job import PROGRESS_EVENTS
from vflops.workloads.automl.candidate_history import CandidateTracker
from vflops.workloads.automl.search_events import CandidateTrained, WorkerBegun


@dataclass
class WorkerProgress:
    """The progress of a worker, as far as its events have been read."""

    duration_s: float
    """How long the worker searches."""
    epoch: float = field(default=0.0, init=False)
    """The epoch of the current candidate in this attempt."""
    accuracy: float | None = field(default=None, init=False)
    """The accuracy of the current candidate's last evaluation in this attempt."""
    best: float | None = field(default=None, init=False)
    best_candidate: str | None = field(default=None, init=False)
    elapsed_s: float = field(default=0.0, init=False)
    """Seconds since the worker began, as of its last event that contains times."""
    _tracker: CandidateTracker = field(default_factory=CandidateTracker, init=False)
    _began_s: float = field(default=0.0, init=False)
    _loaded_s: float | None = field(default=None, init=False)
    _updated_s: float | None = field(default=None, init=False)
    """When ``elapsed_s`` was last set; None if the worker has not begun."""

    @property
    def candidate(self) -> str | None:
        """The candidate in training; None between two candidates."""
        current = self._tracker.current
        return None if current is None else current.begun.candidate

    @property
    def trained(self) -> int:
        """The number of candidates trained so far."""
        return sum(isinstance(end, CandidateTrained) for end in self._tracker.outcomes.values())

    @property
    def ops(self) -> int:
        """Operations charged so far."""
        return self._tracker.ops

    def left_s(self) -> float:
        """Return how many seconds the worker has left."""
        since_s = 0.0 if self._updated_s is None else time.monotonic() - self._updated_s
        return max(self.duration_s - self.elapsed_s - since_s, 0.0)

    def __call__(self, kind: str, data: dict[str, Any]) -> None:
        """Apply an event; one with an invalid payload is skipped."""
        self._tracker.take(kind, data)
        with suppress(ValidationError):
            if kind == "worker":
                self._began_s = self.duration_s - WorkerBegun.model_validate(data).left_s
                self._loaded_s = None
                self._set_elapsed(self._began_s)
            elif kind == "candidate":
                self.epoch, self.accuracy = 0.0, None
            elif kind in PROGRESS_EVENTS:
                self._apply_progress(PROGRESS_EVENTS[kind].model_validate(data))

    def _apply_progress(self, progress: ProgressPoint) -> None:
        self.epoch = progress.epoch
        current = self._tracker.current
        if self._loaded_s is None and current is not None:
            # Phases include the time before the worker began, when torch was loaded.
            waited_s = current.resumed.waited_s + current.resumed.built_s
            self._loaded_s = progress.phases.get("start-up", 0.0) - waited_s
        self._set_elapsed(self._began_s + sum(progress.phases.values()) - (self._loaded_s or 0.0))
        if isinstance(progress, Evaluated):
            self.accuracy = progress.quality
            if current is not None and (self.best is None or progress.quality > self.best):
                self.best, self.best_candidate = progress.quality, current.begun.candidate

    def _set_elapsed(self, elapsed_s: float) -> None:
        self.elapsed_s, self._updated_s = max(elapsed_s, 0.0), time.monotonic()


def observer(record: JobRecord) -> WorkerProgress:
    """Return a new ``WorkerProgress`` for the worker that ``record`` describes."""
    return WorkerProgress(record.settings["search"]["duration_s"])
