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
    def now(self) -> Sequence[Turn] | None:
        """Those that wait, the next one first; None: none will come any more."""

    @property
    def why(self) -> str | None:
        """Why none will come, where that is worth a word."""
        return None

    def close(self) -> None:  # noqa: B027  (only a search has something to end)
        """The worker has ended."""


class SearchSource(CandidateSource):
    """What the process beside the worker proposes; in ordered mode only the worker's own turn."""

    def __init__(
        self, searching: ProposerProcess, buffer: CandidateBuffer, own: int | None
    ) -> None:
        """``own``: the worker, in ordered mode."""
        self._searching, self._buffer, self._own = searching, buffer, own

    def now(self) -> Sequence[Turn] | None:
        """None where nothing waits and the search has ended."""
        goes_on = self._searching.goes_on()  # before the look: what it left is seen
        self._buffer.look()
        waiting = self._buffer.waiting()
        if self._own is not None:
            waiting = tuple(turn for turn in waiting if turn.worker == self._own)[:1]
        return waiting if waiting or goes_on else None

    @property
    def why(self) -> str:
        """What the search said at its end."""
        return self._searching.last_words

    def close(self) -> None:
        """End the search."""
        self._searching.close()


class ReplaySource(CandidateSource):
    """The candidates of a replay: those whose parents came to an end.

    A parent whose worker died for good is not waited for: its children start from new weights, do
    the same work, and their record says so.
    """

    def __init__(self, buffer: CandidateBuffer, ledger: SharedResults, patience_s: float) -> None:
        self._buffer, self._ledger, self._patience_s = buffer, ledger, patience_s
        self._parents: dict[str, str | None] = {}

    def now(self) -> Sequence[Turn] | None:
        """In the order of the search."""
        self._buffer.look()
        self._ledger.read()
        waiting = self._buffer.waiting()
        return [turn for turn in waiting if self._ready(turn)] if waiting else None

    def _ready(self, turn: Turn) -> bool:
        if turn.name not in self._parents:
            candidate = self._buffer.get(turn)
            self._parents[turn.name] = candidate.parent if candidate else None
        parent = self._parents[turn.name]
        return parent is None or parent in self._ledger.results or self._orphaned(parent)

    def _orphaned(self, parent: str) -> bool:
        turn = Turn.named(parent)
        if not self._buffer.has(turn):  # it is no part of the work
            return True
        holder = self._buffer.claimed_by(turn)
        silent_s = self._ledger.silent_s(holder) if holder is not None else 0.0
        return silent_s > self._patience_s or self._ledger.lost(turn)
