"""The mean of a tensor over ranks: all at once, by levels, or along rows and columns."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch.distributed as dist
from torch import Tensor
from torch.nn import functional

from vflops.metrics.traffic import near_ranks
from vflops.train.communication.codec import Codec, Leftovers, codec
from vflops.train.communication.link import Link, Traffic


class Average(ABC):
    """Ranks that average; all of them build it at the same time, and call it in the same order."""

    def __init__(self, ranks: Sequence[int], backend: str, near: int, code: Codec) -> None:
        self.ranks, self.near, self.backend = len(ranks), near, backend
        self.traffic = Traffic()
        self._code = code
        self._join(list(ranks))

    def __call__(self, numbers: Tensor, left: Leftovers) -> None:
        """Leave the mean over the ranks in the flat tensor ``numbers``, in its own type.

        They are divided first, so that a sum is no larger than what is summed.
        """
        padded = functional.pad(numbers.float() / self.ranks, (0, -len(numbers) % self.ranks))
        mean = self._code.decode(self._sum(padded, left)).view(-1)
        numbers.copy_(mean[: len(numbers)])

    @abstractmethod
    def _join(self, ranks: list[int]) -> None:
        """Make the groups that this rank is in."""

    @abstractmethod
    def _sum(self, numbers: Tensor, left: Leftovers) -> Tensor:
        """The wire of the sum of all ranks' ``numbers``, the same on each."""

    def _link(self, ranks: list[int], near: int) -> Link:
        return Link.between(ranks, self.backend, near, self.traffic)


class Flat(Average):
    """All ranks at once."""

    def _join(self, ranks: list[int]) -> None:
        self._all = self._link(ranks, self.near)

    def _sum(self, numbers: Tensor, left: Leftovers) -> Tensor:
        return self._code.all_reduce(self._all, numbers, left)


class Rows(Average):
    """Ranks in rows that are near each other; columns are those of the same place in a row."""

    def _join(self, ranks: list[int]) -> None:
        row, column = divmod(ranks.index(dist.get_rank()), self.near)
        self._row = self._link(ranks[row * self.near :][: self.near], self.near)
        self._column = self._link(ranks[column :: self.near], 1)


class Hierarchical(Rows):
    """To the first of a row, between those, and back to the row."""

    def _sum(self, numbers: Tensor, left: Leftovers) -> Tensor:
        total = self._code.reduce(self._row, numbers, left, "near")
        if total is None:
            wire = self._code.blank(len(numbers), self._column.ranks, numbers.device)
        else:
            wire = self._code.all_reduce(self._column, total, left)
        self._row.broadcast(wire)
        return wire


class Torus(Rows):
    """Scattered along rows, summed along columns, gathered along rows."""

    def _sum(self, numbers: Tensor, left: Leftovers) -> Tensor:
        piece = self._code.reduce_scatter(self._row, numbers, left, "near")
        return self._row.all_gather(self._code.all_reduce(self._column, piece, left))


_MODES: dict[str, type[Average]] = {
    "all-reduce": Flat,
    "hierarchical": Hierarchical,
    "torus": Torus,
}


def average(
    mode: str,
    precision: str,
    group: dist.ProcessGroup | None = None,
    *,
    node: int,
    near: int | None = None,
) -> Average:
    """The average over a group (None: all ranks) of which ``node`` ranks at a time are on a node.

    All ranks of the group call it at the same time.
    """
    ranks = dist.get_process_group_ranks(group)
    row = min(node, len(ranks)) if mode == "all-reduce" else near_ranks(len(ranks), node, near)
    return _MODES[mode](ranks, dist.get_backend(group), row, codec(precision))
