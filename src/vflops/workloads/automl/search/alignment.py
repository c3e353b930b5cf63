"""Computes edit distances from one sequence to many at once, in integers, with numpy only.

Inserting or deleting a symbol costs ``GAP``, replacing x by y costs ``cost(x, y)``. If
``cost`` is a metric with values up to 2 · GAP, this distance is a metric too. (Treat a gap as one
more symbol at distance GAP from all others: then costs are a metric on symbols, and an alignment of
a with b and one of b with c compose to an alignment of a with c, which by the triangle inequality
costs no more than both together.)

An alignment costs GAP for every symbol, minus a saving of 2 · GAP − cost(x, y) for every matched
pair. So the distance is (|a| + |b|) · GAP minus the weight of the heaviest common subsequence. Its
recurrence ``best[i, j] = max(best[i-1, j], best[i, j-1], best[i-1, j-1] + saving)`` is a running
maximum along j: one row of the table, for all sequences, takes a handful of vector instructions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

Symbol = TypeVar("Symbol")
Cells = NDArray[np.signedinteger[Any]]

GAP = 64
"""The cost of one extra symbol; a power of two, so that distance / GAP is an exact float."""


class Alignment(Generic[Symbol]):
    """A list of sequences to compare others with; equal ones are compared only once."""

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
        # Table entries are at most the shorter length · 2 · GAP, and narrow cells are faster.
        narrow = longest * 2 * GAP < np.iinfo(np.int16).max
        self._type: np.dtype[np.signedinteger[Any]] = np.dtype(np.int16 if narrow else np.int64)
        # Position first, so that neighbours along a sequence are rows of memory. The padding of
        # short sequences is never read: a cell depends only on those to its left.
        self._symbols = np.zeros((longest, len(distinct)), dtype=np.intp)
        for sequence, row in distinct.items():
            self._symbols[: len(sequence), row] = [self._codes[symbol] for symbol in sequence]
        self._savings: dict[Symbol, Cells] = {}
        self._last: tuple[Symbol, ...] = ()
        self._table = [np.zeros((longest + 1, len(distinct)), dtype=self._type)]

    def distances(self, sequence: tuple[Symbol, ...]) -> NDArray[np.int64]:
        """Return the distance of ``sequence`` to each of the sequences.

        The table of the previous call is reused for the common prefix of both sequences. Prefixes
        are long in simulated annealing, or if calls are sorted.
        """
        common = _common_prefix(sequence, self._last)
        self._last = sequence
        del self._table[common + 1 :]
        for symbol in sequence[common:]:
            self._table.append(self._next_row(self._table[-1], self._saving_of(symbol)))
        best = self._table[-1][self._lengths, np.arange(len(self._lengths))].astype(np.int64)
        return ((len(sequence) + self._lengths) * GAP - best)[self._rows]

    def _next_row(self, previous: Cells, saving: Cells) -> Cells:
        best, spare = np.empty_like(previous), np.empty_like(previous)
        best[0] = 0
        np.add(previous[:-1], saving, out=best[1:])
        np.maximum(best, previous, out=best)
        reach = 1
        while reach < len(best):  # the running maximum by doubling
            spare[:reach] = best[:reach]
            np.maximum(best[reach:], best[:-reach], out=spare[reach:])
            best, spare = spare, best
            reach *= 2
        return best

    def _saving_of(self, symbol: Symbol) -> Cells:
        if symbol not in self._savings:
            costs = [2 * GAP - self._cost(symbol, other) for other in self._codes]
            self._savings[symbol] = np.array(costs).astype(self._type)[self._symbols]
        return self._savings[symbol]


def _common_prefix(first: tuple[object, ...], second: tuple[object, ...]) -> int:
    """Return the length of the common prefix."""
    pairs = zip(first, second, strict=False)
    differing = (index for index, (x, y) in enumerate(pairs) if x != y)
    return next(differing, min(len(first), len(second)))
