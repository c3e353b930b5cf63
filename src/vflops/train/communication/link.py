"""A process group that counts the bytes of each call, and over which links they go.

The counts are those of gloo, from its source and confirmed on a network interface: all-reduce and
all-gather are rings, a broadcast is a binomial tree, all-to-all, gather and send are direct. Its
reduce-scatter is a whole all-reduce, and its reduce sends (n+1)/n as much as a gather: nothing here
calls these two, but FSDP2 calls the first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor

_TIMEOUT = timedelta(minutes=10)


@dataclass
class Traffic:
    """Bytes that this rank has sent, and the calls that sent them."""

    near: int = 0
    far: int = 0
    calls: set[str] = field(default_factory=set)

    @property
    def all(self) -> int:
        """Bytes over all links."""
        return self.near + self.far


@dataclass(frozen=True)
class Link:
    """The ranks of a group, of which each ``near`` consecutive ones are near each other."""

    group: dist.ProcessGroup
    rank: int
    ranks: int
    near: int
    traffic: Traffic

    @property
    def backend(self) -> str:
        """The name of the library."""
        return dist.get_backend(self.group)

    @classmethod
    def between(cls, ranks: Sequence[int], backend: str, near: int, traffic: Traffic) -> Link:
        """Return a new group of these ranks of the job; each of them calls it, in the same order.

        A new one, because messages of two threads in one group would be mixed up.
        """
        group = dist.new_group(
            list(ranks), timeout=_TIMEOUT, backend=backend, use_local_synchronization=True
        )
        assert isinstance(group, dist.ProcessGroup)
        return cls.of(group, near, traffic)

    @classmethod
    def of(cls, group: dist.ProcessGroup | None, near: int, traffic: Traffic) -> Link:
        """Return an existing group; None for all ranks."""
        chosen = dist.group.WORLD if group is None else group
        assert chosen is not None
        return cls(chosen, dist.get_rank(chosen), dist.get_world_size(chosen), near, traffic)

    def all_reduce(self, data: Tensor) -> None:
        """Replace ``data`` by its sum over the ranks."""
        self.count_all_reduce(data.nbytes)
        dist.all_reduce(data, group=self.group)

    def count_all_reduce(self, size_bytes: int) -> None:
        """Count an all-reduce of ``size_bytes`` made elsewhere."""
        self._sent("all-reduce", self._before, 2 * (self.ranks - 1) * size_bytes // self.ranks)

    def count_reduce_scatter(self, size_bytes: int) -> None:
        """Count a reduce-scatter of ``size_bytes`` of each rank made elsewhere."""
        times = 2 if self.backend == "gloo" else 1
        sent = times * (self.ranks - 1) * size_bytes // self.ranks
        self._sent("reduce-scatter", self._before, sent)

    def count_all_gather(self, piece_bytes: int) -> None:
        """Count an all-gather of pieces of ``piece_bytes`` made elsewhere."""
        self._sent("all-gather", self._before, (self.ranks - 1) * piece_bytes)

    def count_send(self, size_bytes: int, to: int) -> None:
        """Count a message to a rank of the group that is sent elsewhere."""
        self._sent("send", to, size_bytes)

    def all_to_all(self, pieces: Tensor) -> Tensor:
        """Send piece i of ``pieces`` to rank i; return what each rank has for this one."""
        for other in range(self.ranks):
            if other != self.rank:
                self._sent("all-to-all", other, pieces.nbytes // self.ranks)
        received = torch.empty_like(pieces)
        dist.all_to_all_single(received, pieces, group=self.group)
        return received

    def all_gather(self, piece: Tensor) -> Tensor:
        """Return the pieces of all ranks, by rank along a new first dimension."""
        self.count_all_gather(piece.nbytes)
        pieces = piece.new_empty((self.ranks, *piece.shape))
        # The second name is that of torch before 2.13, which deprecates it.
        call = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
        call(pieces.view(-1), piece.view(-1), group=self.group)
        return pieces

    def gather(self, piece: Tensor) -> Tensor | None:
        """Return the pieces of all ranks on the first rank; None elsewhere."""
        self.traffic.calls.add("gather")  # also on the rank that sends nothing
        if self.rank:
            self._sent("gather", 0, piece.nbytes)
            dist.gather(piece, group=self.group, group_dst=0)
            return None
        pieces = piece.new_empty((self.ranks, *piece.shape))
        dist.gather(piece, list(pieces), group=self.group, group_dst=0)
        return pieces

    def broadcast(self, data: Tensor) -> None:
        """Replace ``data`` by that of the first rank."""
        for bit in range((self.ranks - 1).bit_length()):
            child = self.rank + (1 << bit)
            if self.rank % (2 << bit) == 0 and child < self.ranks:
                self._sent("broadcast", child, data.nbytes)
        dist.broadcast(data, group=self.group, group_src=0)

    @property
    def _before(self) -> int:
        return (self.rank - 1) % self.ranks

    def _sent(self, call: str, to: int, size_bytes: int) -> None:
        self.traffic.calls.add(call)
        if self.rank // self.near == to // self.near:
            self.traffic.near += size_bytes
        else:
            self.traffic.far += size_bytes
