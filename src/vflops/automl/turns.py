"""Which results a proposal may depend on: all that are known, or those of a fixed order."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from vflops.automl.buffer import Buffer
from vflops.automl.ledger import Ledger, Result
from vflops.automl.record import Turn

LAG = 2
"""Ordered: a proposal of round r depends on the results of rounds up to r - 2. So it is made while
the worker trains round r - 1, and nobody waits for a worker that is less than a round late."""


@dataclass(frozen=True)
class Known:
    """What a proposal is made from."""

    results: tuple[Result, ...]
    """In the order of their turns."""
    proposed: tuple[Turn, ...]
    """Candidates before it, whatever became of them: none of them is proposed again."""

    @property
    def sha256(self) -> str:
        """Of the results' names and accuracies."""
        lines = (
            f"{each.turn.name} {each.trained.accuracy!r}" if each.trained else each.turn.name
            for each in self.results
        )
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def known_now(ledger: Ledger, buffer: Buffer) -> Known:
    """Free: all results by now."""
    ledger.read()
    buffer.look()
    results = sorted(ledger.results.values(), key=lambda each: each.turn.name)
    return Known(tuple(results), buffer.turns())


def known_before(turn: Turn, workers: int, ledger: Ledger, buffer: Buffer) -> Known | None:
    """Ordered: what the turn waits for, once all of that is there; None before.

    Those are the results of all rounds up to the turn's less ``LAG``, and the proposals of all
    turns before it. A turn that was given up has no result, also if its worker comes back with one.
    """
    ledger.read()
    buffer.look()
    results: list[Result] = []
    proposed: list[Turn] = []
    for each in _turns_before(turn, workers):
        if buffer.given_up(each):
            continue
        if each.round <= turn.round - LAG:
            found = ledger.results.get(each.name)
            if found is None:
                return None
            results.append(found)
        if not buffer.has(each):
            return None
        proposed.append(each)
    return Known(tuple(results), tuple(proposed))


def late(turn: Turn, workers: int, ledger: Ledger, buffer: Buffer) -> list[Turn]:
    """Ordered: the turns that this one waits for."""
    return [
        each
        for each in _turns_before(turn, workers)
        if not buffer.given_up(each)
        and (
            not buffer.has(each)
            or (each.round <= turn.round - LAG and each.name not in ledger.results)
        )
    ]


def _turns_before(turn: Turn, workers: int) -> Sequence[Turn]:
    whole = [Turn(round=r, worker=w) for r in range(turn.round) for w in range(workers)]
    return whole + [Turn(round=turn.round, worker=w) for w in range(turn.worker)]
