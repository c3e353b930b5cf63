"""The results of all workers so far, read from the workers' logs."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any

from vflops.record.folder import RunFolder
from vflops.record.log.tail import Listener, Tail
from vflops.record.readout.trained_job import PROGRESS_EVENTS
from vflops.workloads.automl.candidate_history import CandidateTracker
from vflops.workloads.automl.search_events import (
    CandidateCut,
    CandidateFailed,
    CandidateTrained,
    Turn,
)


@dataclass(frozen=True)
class CandidateResult:
    """How a candidate ended."""

    turn: Turn
    trained: CandidateTrained | None
    """None if it could not be trained."""
    out_of_memory: bool = False
    """Whether it could not be trained for lack of memory."""


class SharedResults:
    """The results in the logs of a run's workers; unreadable lines are skipped."""

    def __init__(self, folder: RunFolder, jobs: Mapping[int, int]) -> None:
        """``jobs`` maps each worker to its job."""
        self._folder, self._jobs = folder, jobs
        self._tails: dict[Path, Tail] = {}
        self._lock = Lock()
        self._heard_s: dict[int, float] = dict.fromkeys(jobs, time.monotonic())
        self._trackers = {worker: CandidateTracker(worker) for worker in jobs}
        self.results: dict[str, CandidateResult] = {}

    def read(self) -> None:
        """Read what was written since the last call; safe to call from several threads."""
        with self._lock:
            for worker, job in self._jobs.items():
                for attempt in self._folder.logged_attempts(job):
                    path = attempt / "events.jsonl"
                    if path not in self._tails:
                        self._tails[path] = Tail(path, self._listener(worker))
                    self._tails[path].read()

    def silent_s(self, worker: int) -> float:
        """Return how long ago this process last saw a new event of ``worker``."""
        return time.monotonic() - self._heard_s[worker]

    def is_lost(self, turn: Turn) -> bool:
        """Whether a result will never come: the worker has moved on without a readable result."""
        abandoned = any(turn.name in tracker.abandoned for tracker in self._trackers.values())
        return abandoned and turn.name not in self.results

    def _listener(self, worker: int) -> Listener:
        tracker = self._trackers[worker]

        def take(kind: str, data: dict[str, Any]) -> None:
            self._heard_s[worker] = time.monotonic()
            if kind in PROGRESS_EVENTS:  # only outcomes matter here
                return
            outcome = tracker.take(kind, data)
            if outcome is not None and not isinstance(outcome, CandidateCut):
                turn = Turn.named(outcome.candidate)
                trained = outcome if isinstance(outcome, CandidateTrained) else None
                too_large = isinstance(outcome, CandidateFailed) and outcome.out_of_memory
                self.results[outcome.candidate] = CandidateResult(turn, trained, too_large)

        return take
