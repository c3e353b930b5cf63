"""The mean of a tensor over ranks: all at once, by levels, or along rows and columns."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch.distributed as dist
from torch import Tensor
from torch.nn import functional

from vflops.metrics.traffic import near_ranks
from vflops.train.communication.codec import Codec, Residuals, codec
from vflops.train.communication.link import Link, Traffic


class Average(ABC):
    """An average over ranks, which all build it at the same time and call it in the same order."""

    def __init__(self, ranks: Sequence[int], backend: str, near: int, codec: Codec) -> None:
        self.ranks, self.near, self.backend = len(ranks), near, backend
        self.traffic = Traffic()
        self._codec = codec
        self._join(list(ranks))

    def __call__(self, numbers: Tensor, residuals: Residuals) -> None:
        """Replace the flat tensor ``numbers`` by its mean over the ranks, in the same type.

        The numbers are divided first, so that no sum overflows.
        """
        padded = functional.pad(numbers.float() / self.ranks, (0, -len(numbers) % self.ranks))
        mean = self._codec.decode(self._sum(padded, residuals)).view(-1)
        numbers.copy_(mean[: len(numbers)])

    @abstractmethod
    def _join(self, ranks: list[int]) -> None:
        """Create the groups of this rank."""

    @abstractmethod
    def _sum(self, numbers: Tensor, residuals: Residuals) -> Tensor:
        """Return the encoded sum of all ranks' ``numbers``, the same on each rank."""

    def _link(self, ranks: list[int], near: int) -> Link:
        return Link.between(ranks, self.backend, near, self.traffic)


class Flat(Average):
    """Averages over all ranks at once."""

    def _join(self, ranks: list[int]) -> None:
        self._all = self._link(ranks, self.near)

    def _sum(self, numbers: Tensor, residuals: Residuals) -> Tensor:
        return self._codec.all_reduce(self._all, numbers, residuals)


class Rows(Average):
    """Ranks in rows of near ranks; a column has the ranks with the same position in their rows."""

    def _join(self, ranks: list[int]) -> None:
        row, column = divmod(ranks.index(dist.get_rank()), self.near)
        self._row = self._link(ranks[row * self.near :][: self.near], self.near)
        self._column = self._link(ranks[column :: self.near], 1)


class Hierarchical(Rows):
    """Sums to the first rank of a row, then between these, and broadcasts to the row."""

    def _sum(self, numbers: Tensor, residuals: Residuals) -> Tensor:
        total = self._codec.reduce(self._row, numbers, residuals, "near")
        if total is None:
            wire = self._codec.blank(len(numbers), self._column.ranks, numbers.device)
        else:
            wire = self._codec.all_reduce(self._column, total, residuals)
        self._row.broadcast(wire)
        return wire


class Torus(Rows):
    """Scatters along rows, sums along columns, gathers along rows."""

    def _sum(self, numbers: Tensor, residuals: Residuals) -> Tensor:
        piece = self._codec.reduce_scatter(self._row, numbers, residuals, "near")
        return self._row.all_gather(self._codec.all_reduce(self._column, piece, residuals))


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
    """Return the average over a group (None: all ranks) with ``node`` consecutive ranks per node.

    All ranks of the group call it at the same time.
    """
    ranks = dist.get_process_group_ranks(group)
    row = min(node, len(ranks)) if mode == "all-reduce" else near_ranks(len(ranks), node, near)
    return _MODES[mode](ranks, dist.get_backend(group), row, codec(precision))
