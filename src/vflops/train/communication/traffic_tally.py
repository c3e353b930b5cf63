"""Traffic between ranks that share a model, in the steps of a training."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import Tensor

from vflops.record.formats.job_events import Exchanged, ModelSharing
from vflops.train.communication.exchange import algorithm
from vflops.train.communication.link import Link, Traffic

_PRECISIONS = {torch.float32: "fp32", torch.float16: "fp16", torch.bfloat16: "bf16"}


class Tally:
    """Counts the traffic of one rank in training steps, without evaluations and checkpoints."""

    def __init__(self, mode: ModelSharing, group: dist.ProcessGroup, near: int) -> None:
        self._mode = mode
        self._link = Link.of(group, min(near, dist.get_world_size(group)), Traffic())
        self._near = self._far = self._steps = 0
        self._types: set[torch.dtype] = set()

    @contextmanager
    def step(self) -> Iterator[None]:
        """Count the traffic inside the context as that of one step."""
        traffic = self._link.traffic
        near, far = traffic.near, traffic.far
        yield
        self._near += traffic.near - near
        self._far += traffic.far - far
        self._steps += 1

    def all_reduce(self, data: Tensor) -> None:
        """Replace ``data`` by its sum over the ranks."""
        self._types.add(data.dtype)
        self._link.all_reduce(data)

    def gathers(self, piece: Tensor) -> None:
        """Count an all-gather of such a piece of every rank."""
        self._types.add(piece.dtype)
        self._link.count_all_gather(piece.nbytes)

    def scatters(self, data: Tensor) -> None:
        """Count a reduce-scatter of ``data``."""
        self._types.add(data.dtype)
        self._link.count_reduce_scatter(data.nbytes)

    def sends(self, data: Tensor, to: int) -> None:
        """Count a message with ``data`` to a rank of the group."""
        self._types.add(data.dtype)
        self._link.count_send(data.nbytes, to)

    def report(self, device: torch.device) -> list[tuple[str, Exchanged]]:
        """Return the traffic of all ranks, which all call it; empty if no step was taken."""
        if not self._steps:
            return []
        link = self._link
        sent = torch.tensor([self._near, self._far], device=device)
        dist.all_reduce(sent)
        how, reason = algorithm(link.backend, link.traffic.calls)
        exchanged = Exchanged(
            mode=self._mode,
            precision="+".join(sorted(_PRECISIONS.get(dtype, str(dtype)) for dtype in self._types)),
            ranks=link.ranks,
            near=link.near,
            backend=link.backend,
            algorithm=how,
            reason=reason,
            bytes_near=int(sent[0]),
            bytes_far=int(sent[1]),
            steps=self._steps,
        )
        return [("exchange", exchanged)]
