"""The messages of FSDP2, as torch sends them by itself, and counted."""

from __future__ import annotations

from typing import Any

import torch.distributed as dist
from torch import Tensor
from torch.distributed.fsdp._fully_shard._fsdp_collectives import (
    DefaultAllGather,
    DefaultReduceScatter,
)

from vflops.train.communication.traffic_tally import Tally


class CountedGather(DefaultAllGather):
    """The weights of a block, of which each rank has a piece."""

    def __init__(self, tally: Tally) -> None:
        self._tally = tally

    def __call__(
        self,
        output_tensor: Tensor,
        input_tensor: Tensor,
        group: dist.ProcessGroup,
        async_op: bool = False,
    ) -> dist.Work | None:
        """Torch's own."""
        self._tally.gathers(input_tensor)
        return super().__call__(output_tensor, input_tensor, group, async_op)


class CountedScatter(DefaultReduceScatter):
    """The gradients of a block, of which each rank gets a piece of the sum."""

    def __init__(self, tally: Tally) -> None:
        self._tally = tally

    def __call__(
        self,
        output_tensor: Tensor,
        input_tensor: Tensor,
        group: dist.ProcessGroup,
        op: Any,
        async_op: bool = False,
    ) -> dist.Work:
        """Torch's own."""
        self._tally.scatters(input_tensor)
        return super().__call__(output_tensor, input_tensor, group, op, async_op)
