"""The collectives of FSDP2, with their traffic counted."""

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
    """All-gather of the weights of a block."""

    def __init__(self, tally: Tally) -> None:
        self._tally = tally

    def __call__(
        self,
        output_tensor: Tensor,
        input_tensor: Tensor,
        group: dist.ProcessGroup,
        async_op: bool = False,
    ) -> dist.Work | None:
        """Call torch's all-gather."""
        self._tally.gathers(input_tensor)
        return super().__call__(output_tensor, input_tensor, group, async_op)


class CountedScatter(DefaultReduceScatter):
    """Reduce-scatter of the gradients of a block."""

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
        """Call torch's reduce-scatter."""
        self._tally.scatters(input_tensor)
        return super().__call__(output_tensor, input_tensor, group, op, async_op)
