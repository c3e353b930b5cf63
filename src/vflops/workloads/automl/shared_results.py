"""What all workers have found so far: read from their logs, which only they write."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any

from pydantic import ValidationError

from vflops.errors import FolderError
from vflops.record.folder import RunFolder
from vflops.record.log.tail import Listener, Tail
from vflops.workloads.automl.search_events import CandidateFailed, CandidateTrained, Turn

_OF_CANDIDATES = ("candidate", "candidate-trained", "candidate-failed", "candidate-cut")


@dataclass(frozen=True)
class CandidateResult:
    """What became of a candidate."""

    turn: Turn
    trained: CandidateTrained | None
    """None: it could not be trained."""


class SharedResults:
    """The logs of a run's workers as one history; lines that cannot be read are passed over."""

    def __init__(self, folder: RunFolder, workers: Mapping[int, int]) -> None:
        """``workers``: the job of each."""
        self._folder, self._jobs = folder, workers
        self._tails: dict[Path, Tail] = {}
        self._lock = Lock()
        self._heard_s: dict[int, float] = dict.fromkeys(workers, time.monotonic())
        self._at: dict[int, str] = {}
        self._left: set[str] = set()
        self.results: dict[str, CandidateResult] = {}

    def read(self) -> None:
        """Take in what was written since; other threads may do so too."""
        with self._lock:
            for worker, job in self._jobs.items():
                for place in self._folder.logged_attempts(job):
                    path = place / "events.jsonl"
                    if path not in self._tails:
                        self._tails[path] = Tail(path, self._listener(worker))
                    self._tails[path].read()

    def silent_s(self, worker: int) -> float:
        """How long a worker has written nothing, as far as this process has seen."""
        return time.monotonic() - self._heard_s[worker]

    def lost(self, turn: Turn) -> bool:
        """Whether no result of it will come: its worker has gone on, and none could be read."""
        return turn.name in self._left and turn.name not in self.results

    def _follow(self, worker: int, kind: str, data: dict[str, Any]) -> None:
        """See what a worker is at, and what it has left behind."""
        if kind in _OF_CANDIDATES or kind == "waiting":
            before, now = self._at.pop(worker, None), data.get("candidate")
            if before is not None and before != now:
                self._left.add(before)
            # One that was cut is left once there is time for another: at the end of all workers'
            # time nothing may be proposed without its result, which a longer search would have.
            if kind in ("candidate", "candidate-cut") and isinstance(now, str):
                self._at[worker] = now
                self._left.discard(now)

    def _take(self, ended: CandidateTrained | CandidateFailed) -> None:
        trained = ended if isinstance(ended, CandidateTrained) else None
        self.results[ended.candidate] = CandidateResult(Turn.named(ended.candidate), trained)

    def _listener(self, worker: int) -> Listener:
        def take(kind: str, data: dict[str, Any]) -> None:
            self._heard_s[worker] = time.monotonic()
            self._follow(worker, kind, data)
            with suppress(ValidationError, FolderError):  # the check's matter; others go on
                if kind == "candidate-trained":
                    self._take(CandidateTrained.model_validate(data))
                elif kind == "candidate-failed":
                    self._take(CandidateFailed.model_validate(data))

        return take
