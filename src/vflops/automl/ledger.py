"""What all workers have found so far: read from their logs, which only they write."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from vflops.automl.record import CandidateFailed, CandidateTrained, Turn
from vflops.errors import FolderError
from vflops.record.folder import RunFolder
from vflops.record.tail import Listener, Tail


@dataclass(frozen=True)
class Result:
    """What became of a candidate."""

    turn: Turn
    trained: CandidateTrained | None
    """None: it could not be trained."""


class Ledger:
    """The logs of a run's workers as one history; lines that cannot be read are passed over."""

    def __init__(self, folder: RunFolder, workers: Mapping[int, int]) -> None:
        """``workers``: the job of each."""
        self._folder, self._jobs = folder, workers
        self._tails: dict[Path, Tail] = {}
        self._heard_s: dict[int, float] = dict.fromkeys(workers, time.monotonic())
        self.results: dict[str, Result] = {}

    def read(self) -> None:
        """Take in what was written since."""
        for worker, job in self._jobs.items():
            for place in self._folder.logged_attempts(job):
                path = place / "events.jsonl"
                if path not in self._tails:
                    self._tails[path] = Tail(path, self._listener(worker))
                self._tails[path].read()

    def silent_s(self, worker: int) -> float:
        """How long a worker has written nothing, as far as this process has seen."""
        return time.monotonic() - self._heard_s[worker]

    def _take(self, ended: CandidateTrained | CandidateFailed) -> None:
        trained = ended if isinstance(ended, CandidateTrained) else None
        self.results[ended.candidate] = Result(Turn.named(ended.candidate), trained)

    def _listener(self, worker: int) -> Listener:
        def take(kind: str, data: dict[str, Any]) -> None:
            self._heard_s[worker] = time.monotonic()
            with suppress(ValidationError, FolderError):  # the check's matter; others go on
                if kind == "candidate-trained":
                    self._take(CandidateTrained.model_validate(data))
                elif kind == "candidate-failed":
                    self._take(CandidateFailed.model_validate(data))

        return take
