"""A process group that counts the bytes it sends, separately over near and far links.

Near links connect ranks of the same node, or of the same row of ranks; all others are far. The
counts follow the algorithms of gloo, taken from its source and confirmed on a network interface:
all-reduce and all-gather are rings, a broadcast is a binomial tree, and all-to-all, gather and send
are direct. Gloo implements reduce-scatter as an all-reduce, and its reduce sends (n+1)/n times as
much as a gather. This class calls neither, but FSDP2 calls reduce-scatter.
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
    """The bytes that this rank has sent over near and far links, and the collectives it called."""

    near_bytes: int = 0
    far_bytes: int = 0
    calls: set[str] = field(default_factory=set)

    def reset(self) -> None:
        """Forget what was sent."""
        self.near_bytes = self.far_bytes = 0
        self.calls.clear()

    @property
    def total_bytes(self) -> int:
        """Bytes sent over all links."""
        return self.near_bytes + self.far_bytes


@dataclass(frozen=True)
class Link:
    """A process group in which ``near_ranks`` consecutive ranks are connected by near links."""

    group: dist.ProcessGroup
    rank: int
    ranks: int
    near_ranks: int
    traffic: Traffic

    @property
    def backend(self) -> str:
        """The name of the communication library."""
        return dist.get_backend(self.group)

    @classmethod
    def create(cls, ranks: Sequence[int], backend: str, near_ranks: int, traffic: Traffic) -> Link:
        """Return a link with a new process group of these ranks.

        All of these ranks call it, in the same order; at the same time, all others create another
        group or call ``leave_out``. The group is new because the messages of two threads in one
        group would be mixed up.
        """
        group = dist.new_group(
            list(ranks), timeout=_TIMEOUT, backend=backend, use_local_synchronization=True
        )
        assert isinstance(group, dist.ProcessGroup)
        return cls.wrap(group, near_ranks, traffic)

    @staticmethod
    def leave_out() -> None:
        """Take no part in a group that other ranks create at the same time.

        If the group of all ranks is bound to a device, other groups are split from it, which its
        ranks do together. Groups of a CPU are not.
        """
        world = dist.group.WORLD
        device = None if world is None else world.bound_device_id
        if world is None or device is None:
            return
        backend = world._get_backend(device)  # as torch's new_group does
        if backend.supports_splitting:
            backend.perform_nocolor_split(device)  # type: ignore[attr-defined]  # not in the stub

    @classmethod
    def wrap(cls, group: dist.ProcessGroup | None, near_ranks: int, traffic: Traffic) -> Link:
        """Return a link with an existing process group; None for that of all ranks."""
        chosen = dist.group.WORLD if group is None else group
        assert chosen is not None
        return cls(chosen, dist.get_rank(chosen), dist.get_world_size(chosen), near_ranks, traffic)

    def all_reduce(self, data: Tensor) -> None:
        """Replace ``data`` by its sum over the ranks."""
        self.count_all_reduce(data.nbytes)
        dist.all_reduce(data, group=self.group)

    def count_all_reduce(self, size_bytes: int) -> None:
        """Count an all-reduce of ``size_bytes`` that is called elsewhere."""
        self._count(
            "all-reduce", self._predecessor, 2 * (self.ranks - 1) * size_bytes // self.ranks
        )

    def count_reduce_scatter(self, size_bytes: int) -> None:
        """Count a reduce-scatter of ``size_bytes`` per rank that is called elsewhere."""
        passes = 2 if self.backend == "gloo" else 1
        sent = passes * (self.ranks - 1) * size_bytes // self.ranks
        self._count("reduce-scatter", self._predecessor, sent)

    def count_all_gather(self, piece_bytes: int) -> None:
        """Count an all-gather of ``piece_bytes`` per rank that is called elsewhere."""
        self._count("all-gather", self._predecessor, (self.ranks - 1) * piece_bytes)

    def count_send(self, size_bytes: int, to: int) -> None:
        """Count a message to rank ``to`` of the group that is sent elsewhere."""
        self._count("send", to, size_bytes)

    def all_to_all(self, pieces: Tensor) -> Tensor:
        """Send piece i of ``pieces`` to rank i; return the pieces received, by rank."""
        for other in range(self.ranks):
            if other != self.rank:
                self._count("all-to-all", other, pieces.nbytes // self.ranks)
        received = torch.empty_like(pieces)
        dist.all_to_all_single(received, pieces, group=self.group)
        return received

    def all_gather(self, piece: Tensor) -> Tensor:
        """Return the pieces of all ranks, stacked along a new first dimension."""
        self.count_all_gather(piece.nbytes)
        pieces = piece.new_empty((self.ranks, *piece.shape))
        # torch 2.13 added the first name and deprecated the second.
        call = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
        call(pieces.view(-1), piece.view(-1), group=self.group)
        return pieces

    def gather(self, piece: Tensor) -> Tensor | None:
        """Return the pieces of all ranks on the first rank, and None on the others."""
        self.traffic.calls.add("gather")  # even on the rank that sends nothing
        if self.rank:
            self._count("gather", 0, piece.nbytes)
            dist.gather(piece, group=self.group, group_dst=0)
            return None
        pieces = piece.new_empty((self.ranks, *piece.shape))
        dist.gather(piece, list(pieces), group=self.group, group_dst=0)
        return pieces

    def broadcast(self, data: Tensor) -> None:
        """Replace ``data`` by the first rank's data."""
        for bit in range((self.ranks - 1).bit_length()):
            child = self.rank + (1 << bit)
            if self.rank % (2 << bit) == 0 and child < self.ranks:
                self._count("broadcast", child, data.nbytes)
        dist.broadcast(data, group=self.group, group_src=0)

    @property
    def _predecessor(self) -> int:
        return (self.rank - 1) % self.ranks

    def _count(self, call: str, to: int, size_bytes: int) -> None:
        self.traffic.calls.add(call)
        if self.rank // self.near_ranks == to // self.near_ranks:
            self.traffic.near_bytes += size_bytes
        else:
            self.traffic.far_bytes += size_bytes
