"""Which results a proposal may depend on: all that are known, or those of a fixed order."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass

from vflops.workloads.automl.candidate_buffer import CandidateBuffer
from vflops.workloads.automl.search_events import Turn
from vflops.workloads.automl.shared_results import CandidateResult, SharedResults

LAG = 2
"""Ordered: a proposal of round r depends on the results of rounds up to r - 2. So it is made while
the worker trains round r - 1, and nobody waits for a worker that is less than a round late."""


@dataclass(frozen=True)
class KnownResults:
    """What a proposal is made from."""

    results: tuple[CandidateResult, ...]
    """In the order of their turns."""
    proposed: tuple[Turn, ...]
    """Candidates before it, whatever became of them: none of them is proposed again."""

    @property
    def sha256(self) -> str:
        """Of the results' names and what they count for."""
        lines = (
            f"{each.turn.name} {each.trained.counts_for!r}" if each.trained else each.turn.name
            for each in self.results
        )
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def all_known(ledger: SharedResults, buffer: CandidateBuffer) -> KnownResults:
    """Free: all results by now."""
    ledger.read()
    buffer.look()
    results = sorted(ledger.results.values(), key=lambda each: each.turn.name)
    return KnownResults(tuple(results), buffer.turns())


class TurnOrder:
    """Ordered: what a turn waits for; it remembers how far all have come, looks only beyond."""

    def __init__(self, workers: int, ledger: SharedResults, buffer: CandidateBuffer) -> None:
        self._workers, self._ledger, self._buffer = workers, ledger, buffer
        self._settled = 0
        """Turns from the first on that nobody waits for any more: with a result, or given up."""

    def known(self, turn: Turn) -> KnownResults | None:
        """What the turn waits for, once all of that is there; None before.

        Those are the results of all rounds up to the turn's less ``LAG``, and the proposals of all
        turns before it. A turn that was given up has no result, also if its worker comes back with
        one; what it has proposed is not proposed again.
        """
        if self.first_late(turn) is not None:
            return None
        before = [self._at(n) for n in range(self._place(turn))]
        needed = before[: self._needed(turn)]
        results = [self._ledger.results[t.name] for t in needed if not self._buffer.given_up(t)]
        proposed = [each for each in before if self._buffer.has(each)]
        return KnownResults(tuple(results), tuple(proposed))

    def first_late(self, turn: Turn) -> Turn | None:
        """The first turn, in their order, that this one waits for; None: it waits for nothing.

        All that it depends on itself is there: so its worker waits for nobody.
        """
        self._ledger.read()
        self._buffer.look()  # after the results: one that was given up before it came is seen
        needed = self._needed(turn)
        while self._settled < needed:
            if self._is_late(each := self._at(self._settled), result=True):
                return each
            self._settled += 1
        rest = (self._at(n) for n in range(needed, self._place(turn)))
        return next((each for each in rest if self._is_late(each, result=False)), None)

    def to_pass(
        self, turn: Turn, patience_s: float, silent_s: Callable[[int], float]
    ) -> Turn | None:
        """A turn that this one is not to wait for any more; ``silent_s``: of a worker.

        Its worker gave no sign of life for too long, or has gone on and its result is lost.
        """
        each = self.first_late(turn)
        if each is None:
            return None
        gone = each.worker != turn.worker and silent_s(each.worker) > patience_s
        return each if gone or self._ledger.lost(each) else None

    def _is_late(self, each: Turn, *, result: bool) -> bool:
        if self._buffer.given_up(each):
            return False
        return not self._buffer.has(each) or (result and each.name not in self._ledger.results)

    def _needed(self, turn: Turn) -> int:
        """The turns whose results it depends on: so many from the first one on."""
        return max(turn.round - LAG + 1, 0) * self._workers

    def _place(self, turn: Turn) -> int:
        return turn.round * self._workers + turn.worker

    def _at(self, place: int) -> Turn:
        return Turn(round=place // self._workers, worker=place % self._workers)
