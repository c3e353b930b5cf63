"""Selects the results that a proposal is based on: all known ones, or those of a fixed order."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass

from vflops.workloads.automl.candidate_buffer import CandidateBuffer
from vflops.workloads.automl.search_events import Turn
from vflops.workloads.automl.shared_results import CandidateResult, SharedResults

LAG = 2
"""In ordered mode a proposal of round r depends on the results of rounds up to r - 2. So it is made
while the worker trains round r - 1, and no worker waits for one less than a round behind."""


@dataclass(frozen=True)
class KnownResults:
    """The results and earlier proposals that a proposal is based on."""

    results: tuple[CandidateResult, ...]
    """In the order of their turns."""
    proposed: tuple[Turn, ...]
    """Earlier candidates, with or without a result; none of them is proposed again."""

    @property
    def sha256(self) -> str:
        """A hash of the candidates' names and accuracies, and of which ran out of memory."""
        lines = (
            f"{result.turn.name} {result.trained.search_accuracy!r}"
            if result.trained
            else result.turn.name + " out of memory" * result.out_of_memory
            for result in self.results
        )
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def all_known(shared: SharedResults, buffer: CandidateBuffer) -> KnownResults:
    """Return all results so far, for a search in free order."""
    shared.read()
    buffer.refresh()
    results = sorted(shared.results.values(), key=lambda result: result.turn.name)
    return KnownResults(tuple(results), buffer.turns())


class TurnOrder:
    """The order of turns in an ordered search: which must be settled before another one."""

    def __init__(self, workers: int, shared: SharedResults, buffer: CandidateBuffer) -> None:
        self._workers, self._shared, self._buffer = workers, shared, buffer
        self._settled = 0
        """How many turns, counted from the first, have a result or were given up."""

    def known(self, turn: Turn) -> KnownResults | None:
        """Return what the proposal of ``turn`` is based on; None until all of it is available.

        It is based on the results of all rounds up to the turn's round minus ``LAG``, and on the
        proposals of all earlier turns. The result of a turn that was given up is not used, even if
        it arrives later; but its architecture is not proposed again.
        """
        if self.first_late(turn) is not None:
            return None
        earlier_turns = [self._turn_at(index) for index in range(self._index(turn))]
        needed = earlier_turns[: self._needed_results(turn)]
        results = [self._shared.results[t.name] for t in needed if not self._buffer.is_given_up(t)]
        proposed = [earlier for earlier in earlier_turns if self._buffer.has(earlier)]
        return KnownResults(tuple(results), tuple(proposed))

    def first_late(self, turn: Turn) -> Turn | None:
        """Return the first turn that ``turn`` waits for; None if it waits for nothing.

        Everything that the late turn depends on is available, so its worker is not waiting.
        """
        self._shared.read()
        self._buffer.refresh()  # after the results, to see turns given up before they arrived
        needed = self._needed_results(turn)
        while self._settled < needed:
            if self._is_late(earlier := self._turn_at(self._settled), result=True):
                return earlier
            self._settled += 1
        rest = (self._turn_at(index) for index in range(needed, self._index(turn)))
        return next((earlier for earlier in rest if self._is_late(earlier, result=False)), None)

    def turn_to_give_up(
        self, turn: Turn, patience_s: float, silent_s: Callable[[int], float]
    ) -> Turn | None:
        """Return a turn that ``turn`` should no longer wait for, if there is one.

        Either its worker has been silent for longer than ``patience_s``, or its result is lost.
        ``silent_s`` returns how long a worker has been silent.
        """
        late = self.first_late(turn)
        if late is None:
            return None
        dead = late.worker != turn.worker and silent_s(late.worker) > patience_s
        return late if dead or self._shared.is_lost(late) else None

    def _is_late(self, turn: Turn, *, result: bool) -> bool:
        if self._buffer.is_given_up(turn):
            return False
        return not self._buffer.has(turn) or (result and turn.name not in self._shared.results)

    def _needed_results(self, turn: Turn) -> int:
        """Return how many turns, counted from the first, ``turn`` needs the results of."""
        return max(turn.round - LAG + 1, 0) * self._workers

    def _index(self, turn: Turn) -> int:
        return turn.round * self._workers + turn.worker

    def _turn_at(self, index: int) -> Turn:
        return Turn(round=index // self._workers, worker=index % self._workers)
