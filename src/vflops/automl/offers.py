"""Where a worker's next candidate comes from: its search, or the fixed work of a replay."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from vflops.automl.buffer import Buffer
from vflops.automl.ledger import Ledger
from vflops.automl.record import Turn
from vflops.automl.searching import Searching


class Offers(ABC):
    """Candidates that a worker may claim."""

    @abstractmethod
    def now(self) -> Sequence[Turn] | None:
        """Those that wait, the next one first; None: none will come any more."""

    def close(self) -> None:  # noqa: B027  (only a search has something to end)
        """The worker has ended."""


class Searched(Offers):
    """What the process beside the worker proposes; in ordered mode only the worker's own turn."""

    def __init__(
        self, searching: Searching, buffer: Buffer, own: Callable[[], Turn] | None
    ) -> None:
        """``own``: the worker's turn, in ordered mode."""
        self._searching, self._buffer, self._own = searching, buffer, own

    def now(self) -> Sequence[Turn] | None:
        """None where nothing waits and the search has ended."""
        goes_on = self._searching.goes_on()  # before the look: what it left is seen
        self._buffer.look()
        waiting = self._buffer.waiting()
        if self._own is not None:
            waiting = tuple(turn for turn in waiting if turn == self._own())
        return waiting if waiting or goes_on else None

    def close(self) -> None:
        """End the search."""
        self._searching.close()


class FixedWork(Offers):
    """The candidates of a replay: those whose parents came to an end."""

    def __init__(self, buffer: Buffer, ledger: Ledger) -> None:
        self._buffer, self._ledger = buffer, ledger

    def now(self) -> Sequence[Turn] | None:
        """In the order of the search."""
        self._buffer.look()
        self._ledger.read()
        waiting = self._buffer.waiting()
        return [turn for turn in waiting if self._ready(turn)] if waiting else None

    def _ready(self, turn: Turn) -> bool:
        candidate = self._buffer.get(turn)
        return candidate is not None and (
            candidate.parent is None or candidate.parent in self._ledger.results
        )
