"""The bytes that ranks sharing a model send to each other in training steps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import Tensor

from vflops.record.formats.job_events import Exchanged, ModelSharing
from vflops.train.communication.exchange import algorithm
from vflops.train.communication.link import Link, Traffic

_PRECISIONS = {torch.float32: "fp32", torch.float16: "fp16", torch.bfloat16: "bf16"}


class Tally:
    """Counts the bytes that one rank sends in training steps, not in evaluations or checkpoints."""

    def __init__(self, mode: ModelSharing, group: dist.ProcessGroup, near_ranks: int) -> None:
        self._mode = mode
        self._link = Link.wrap(group, min(near_ranks, dist.get_world_size(group)), Traffic())
        self._near_bytes = self._far_bytes = self._steps = 0
        self._types: set[torch.dtype] = set()

    @contextmanager
    def step(self) -> Iterator[None]:
        """Count the traffic inside the context as that of one step."""
        with self._counted():
            yield
        self._steps += 1

    @contextmanager
    def _counted(self) -> Iterator[None]:
        traffic = self._link.traffic
        near, far = traffic.near_bytes, traffic.far_bytes
        yield
        self._near_bytes += traffic.near_bytes - near
        self._far_bytes += traffic.far_bytes - far

    def all_reduce(self, data: Tensor) -> None:
        """Replace ``data`` by its sum over the ranks."""
        self._types.add(data.dtype)
        self._link.all_reduce(data)

    def maximum(self, data: Tensor) -> None:
        """Replace ``data`` by the largest values of the ranks."""
        self._types.add(data.dtype)
        self._link.count_all_reduce(data.nbytes)
        dist.all_reduce(data, dist.ReduceOp.MAX, group=self._link.group)

    def all_gather(self, piece: Tensor) -> Tensor:
        """Return the pieces of all ranks, stacked; counted in the last step, which it completes."""
        self._types.add(piece.dtype)
        with self._counted():
            return self._link.all_gather(piece)

    def subgroup(self, ranks: Sequence[int]) -> Link:
        """Return a link between some ranks of the group, whose traffic is counted as well.

        These ranks call it, and all others ``Link.leave_out``. The link is near if they are all on
        one node.
        """
        global_ranks = [dist.get_global_rank(self._link.group, rank) for rank in ranks]
        nodes = {rank // self._link.near_ranks for rank in ranks}
        near_ranks = len(ranks) if len(nodes) == 1 else 1
        return Link.create(global_ranks, self._link.backend, near_ranks, self._link.traffic)

    def count_all_gather(self, piece: Tensor) -> None:
        """Count an all-gather in which every rank contributes a piece like ``piece``."""
        self._types.add(piece.dtype)
        self._link.count_all_gather(piece.nbytes)

    def count_reduce_scatter(self, data: Tensor) -> None:
        """Count a reduce-scatter of ``data``."""
        self._types.add(data.dtype)
        self._link.count_reduce_scatter(data.nbytes)

    def count_send(self, data: Tensor, to: int) -> None:
        """Count a message with ``data`` to rank ``to`` of the group."""
        self._types.add(data.dtype)
        self._link.count_send(data.nbytes, to)

    def report(self, device: torch.device) -> list[tuple[str, Exchanged]]:
        """Return the event with the traffic of all ranks, or no event if no step was taken.

        All ranks call it.
        """
        if not self._steps:
            return []
        link = self._link
        sent = torch.tensor([self._near_bytes, self._far_bytes], device=device)
        dist.all_reduce(sent)
        name, reason = algorithm(link.backend, link.traffic.calls)
        exchanged = Exchanged(
            mode=self._mode,
            precision="+".join(sorted(_PRECISIONS.get(dtype, str(dtype)) for dtype in self._types)),
            ranks=link.ranks,
            near=link.near_ranks,
            backend=link.backend,
            algorithm=name,
            reason=reason,
            bytes_near=int(sent[0]),
            bytes_far=int(sent[1]),
            steps=self._steps,
        )
        return [("exchange", exchanged)]
