"""Where a worker's next candidate comes from: its search, or the fixed work of a replay."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from vflops.workloads.automl.candidate_buffer import CandidateBuffer
from vflops.workloads.automl.proposer_process import ProposerProcess
from vflops.workloads.automl.search_events import Turn
from vflops.workloads.automl.shared_results import SharedResults


class CandidateSource(ABC):
    """Candidates that a worker may claim."""

    @abstractmethod
    def available(self) -> Sequence[Turn] | None:
        """Return the candidates to claim, the next one first; None if there will be no more."""

    @property
    def end_reason(self) -> str | None:
        """Why no more candidates will come, if that is worth reporting."""
        return None

    def close(self) -> None:
        """Release resources at the end of the worker."""


class SearchSource(CandidateSource):
    """The proposals of the search: those of all workers, or only the next one of this worker."""

    def __init__(
        self, process: ProposerProcess, buffer: CandidateBuffer, worker: int | None
    ) -> None:
        """``worker`` is the index of this worker if it trains only its own proposals, else None."""
        self._process, self._buffer, self._worker = process, buffer, worker

    def available(self) -> Sequence[Turn] | None:
        """Return the unclaimed proposals; None if there are none and the search has ended."""
        running = self._process.is_running()  # first, so that no last proposal is missed
        self._buffer.refresh()
        turns = self._buffer.unclaimed()
        if self._worker is not None:
            turns = tuple(turn for turn in turns if turn.worker == self._worker)[:1]
        return turns if turns or running else None

    @property
    def end_reason(self) -> str:
        """The last message of the search."""
        return self._process.last_line

    def close(self) -> None:
        """Stop the search."""
        self._process.close()


class ReplaySource(CandidateSource):
    """The candidates of a replay whose parents have ended.

    A parent whose worker has died permanently is not waited for. Its children then start from new
    weights, which the log records; the amount of work is the same.
    """

    def __init__(self, buffer: CandidateBuffer, shared: SharedResults, patience_s: float) -> None:
        """A worker that is silent for longer than ``patience_s`` is considered dead."""
        self._buffer, self._shared, self._patience_s = buffer, shared, patience_s
        self._parents: dict[str, str | None] = {}

    def available(self) -> Sequence[Turn] | None:
        """Return the candidates that are ready, in the order of the search."""
        self._buffer.refresh()
        self._shared.read()
        unclaimed = self._buffer.unclaimed()
        return [turn for turn in unclaimed if self._is_ready(turn)] if unclaimed else None

    def _is_ready(self, turn: Turn) -> bool:
        if turn.name not in self._parents:
            candidate = self._buffer.get(turn)
            self._parents[turn.name] = candidate.parent if candidate else None
        parent = self._parents[turn.name]
        return parent is None or parent in self._shared.results or self._never_ends(parent)

    def _never_ends(self, parent: str) -> bool:
        turn = Turn.named(parent)
        if not self._buffer.has(turn):  # not part of the replay
            return True
        worker = self._buffer.claimed_by(turn)
        silent_s = self._shared.silent_s(worker) if worker is not None else 0.0
        return silent_s > self._patience_s or self._shared.is_lost(turn)
