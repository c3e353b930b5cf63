"""The mean of a tensor over ranks: all at once, through row leaders, or along rows and columns."""

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
    """Averages tensors over ranks.

    All ranks create it at the same time, and call it in the same order. ``near_ranks`` consecutive
    ranks are connected by near links, such as those within a node.
    """

    def __init__(self, ranks: Sequence[int], backend: str, near_ranks: int, codec: Codec) -> None:
        self.ranks, self.near_ranks, self.backend = len(ranks), near_ranks, backend
        self.traffic = Traffic()
        self._codec = codec
        self._join(list(ranks))

    def __call__(self, numbers: Tensor, residuals: Residuals) -> None:
        """Replace the flat tensor ``numbers`` by its mean over the ranks, in the same type.

        The numbers are divided before they are summed, so that no sum overflows.
        """
        padded = functional.pad(numbers.float() / self.ranks, (0, -len(numbers) % self.ranks))
        mean = self._codec.decode(self._sum(padded, residuals)).view(-1)
        numbers.copy_(mean[: len(numbers)])

    @abstractmethod
    def _join(self, ranks: list[int]) -> None:
        """Create the process groups of this rank."""

    @abstractmethod
    def _sum(self, numbers: Tensor, residuals: Residuals) -> Tensor:
        """Return the encoded sum of all ranks' ``numbers``, which is the same on every rank."""

    def _link(self, ranks: list[int], near_ranks: int) -> Link:
        return Link.create(ranks, self.backend, near_ranks, self.traffic)


class FlatAverage(Average):
    """Averages over all ranks at once."""

    def _join(self, ranks: list[int]) -> None:
        self._all = self._link(ranks, self.near_ranks)

    def _sum(self, numbers: Tensor, residuals: Residuals) -> Tensor:
        return self._codec.all_reduce(self._all, numbers, residuals)


class RowAverage(Average):
    """The ranks in rows of near ranks; a column has the ranks at the same position of each row."""

    def _join(self, ranks: list[int]) -> None:
        row, column = divmod(ranks.index(dist.get_rank()), self.near_ranks)
        start = row * self.near_ranks
        self._row = self._link(ranks[start : start + self.near_ranks], self.near_ranks)
        self._column = self._link(ranks[column :: self.near_ranks], 1)


class HierarchicalAverage(RowAverage):
    """Sums each row on its first rank, sums over these ranks, and broadcasts along the rows."""

    def _sum(self, numbers: Tensor, residuals: Residuals) -> Tensor:
        total = self._codec.reduce(self._row, numbers, residuals, "near")
        if total is None:
            wire = self._codec.blank(len(numbers), self._column.ranks, numbers.device)
        else:
            wire = self._codec.all_reduce(self._column, total, residuals)
        self._row.broadcast(wire)
        return wire


class TorusAverage(RowAverage):
    """Reduce-scatters along rows, sums along columns, and gathers along rows."""

    def _sum(self, numbers: Tensor, residuals: Residuals) -> Tensor:
        piece = self._codec.reduce_scatter(self._row, numbers, residuals, "near")
        return self._row.all_gather(self._codec.all_reduce(self._column, piece, residuals))


_MODES: dict[str, type[Average]] = {
    "all-reduce": FlatAverage,
    "hierarchical": HierarchicalAverage,
    "torus": TorusAverage,
}


def average(
    mode: str,
    precision: str,
    group: dist.ProcessGroup | None = None,
    *,
    local_ranks: int,
    row_ranks: int | None = None,
) -> Average:
    """Return an average over the ranks of a group; None for all ranks.

    ``local_ranks`` consecutive ranks are on one node. ``row_ranks`` is the number of ranks per row
    in the modes hierarchical and torus; None chooses one. All ranks of the group call this function
    at the same time.
    """
    ranks = dist.get_process_group_ranks(group)
    if mode == "all-reduce":
        near = min(local_ranks, len(ranks))
    else:
        near = near_ranks(len(ranks), local_ranks, row_ranks)
    return _MODES[mode](ranks, dist.get_backend(group), near, codec(precision))
