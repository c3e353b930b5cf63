"""Edit distances of one sequence to many at once, in whole numbers; numpy alone.

Taking a symbol out or putting one in costs ``GAP``, turning x into y costs ``cost(x, y)``. Where
``cost`` is a metric of at most 2 · GAP, so is this distance. (Let a gap be one more symbol, GAP
away from all others: then costs are a metric on symbols, and two alignments, a with b and b with c,
compose to one of a with c that by the triangle inequality of symbols costs no more than both.)

An alignment costs GAP for every symbol less what it saves: 2 · GAP − cost(x, y) for a pair that it
matches. So the distance is (|a| + |b|) · GAP − the heaviest common subsequence, whose recurrence
``best[i, j] = max(best[i-1, j], best[i, j-1], best[i-1, j-1] + saving)`` is a running maximum along
j: a row for all sequences at once is a handful of vector instructions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

Symbol = TypeVar("Symbol")
Cells = NDArray[np.signedinteger[Any]]

GAP = 64
"""The cost of a symbol too many. A power of two: distances in gaps are exact as floats."""


class Alignment(Generic[Symbol]):
    """Sequences that others are compared with; equal ones are compared once."""

    def __init__(
        self, sequences: Sequence[tuple[Symbol, ...]], cost: Callable[[Symbol, Symbol], int]
    ) -> None:
        distinct = {sequence: row for row, sequence in enumerate(dict.fromkeys(sequences))}
        self._rows = np.array([distinct[sequence] for sequence in sequences], dtype=np.intp)
        self._lengths = np.array([len(sequence) for sequence in distinct], dtype=np.intp)
        self._cost = cost
        vocabulary = dict.fromkeys(symbol for sequence in distinct for symbol in sequence)
        self._codes = {symbol: code for code, symbol in enumerate(vocabulary)}
        longest = int(self._lengths.max(initial=0))
        # What a table holds is at most the shorter length · 2 · GAP, and narrow cells are quicker.
        narrow = longest * 2 * GAP < np.iinfo(np.int16).max
        self._type: np.dtype[np.signedinteger[Any]] = np.dtype(np.int16 if narrow else np.int64)
        # Position first: neighbours along a sequence are then whole rows of memory. What pads a
        # short sequence is never read: a cell depends only on those to its left.
        self._places = np.zeros((longest, len(distinct)), dtype=np.intp)
        for sequence, row in distinct.items():
            self._places[: len(sequence), row] = [self._codes[symbol] for symbol in sequence]
        self._savings: dict[Symbol, Cells] = {}
        self._last: tuple[Symbol, ...] = ()
        self._table = [np.zeros((longest + 1, len(distinct)), dtype=self._type)]

    def distances(self, sequence: tuple[Symbol, ...]) -> NDArray[np.int64]:
        """The distance of ``sequence`` to each of the sequences, in units of which GAP is one gap.

        The table of the call before is kept as far as both sequences begin alike: those of an
        annealing, or sorted ones, mostly do.
        """
        alike = _alike(sequence, self._last)
        self._last = sequence
        del self._table[alike + 1 :]
        for symbol in sequence[alike:]:
            self._table.append(self._next(self._table[-1], self._saving(symbol)))
        best = self._table[-1][self._lengths, np.arange(len(self._lengths))].astype(np.int64)
        return ((len(sequence) + self._lengths) * GAP - best)[self._rows]

    def _next(self, before: Cells, saving: Cells) -> Cells:
        best, spare = np.empty_like(before), np.empty_like(before)
        best[0] = 0
        np.add(before[:-1], saving, out=best[1:])
        np.maximum(best, before, out=best)
        reach = 1
        while reach < len(best):  # the running maximum by doubling: few passes, each over all
            spare[:reach] = best[:reach]
            np.maximum(best[reach:], best[:-reach], out=spare[reach:])
            best, spare = spare, best
            reach *= 2
        return best

    def _saving(self, symbol: Symbol) -> Cells:
        if symbol not in self._savings:
            costs = [2 * GAP - self._cost(symbol, other) for other in self._codes]
            self._savings[symbol] = np.array(costs).astype(self._type)[self._places]
        return self._savings[symbol]


def _alike(one: tuple[object, ...], other: tuple[object, ...]) -> int:
    """How many symbols both begin with."""
    pairs = zip(one, other, strict=False)
    differing = (place for place, (x, y) in enumerate(pairs) if x != y)
    return next(differing, min(len(one), len(other)))
