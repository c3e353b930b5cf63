"""The collectives of FSDP2, which also count the bytes sent."""

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
    """The all-gather of a block's weights, counted."""

    def __init__(self, tally: Tally) -> None:
        self._tally = tally

    def __call__(
        self,
        output_tensor: Tensor,
        input_tensor: Tensor,
        group: dist.ProcessGroup,
        async_op: bool = False,
    ) -> dist.Work | None:
        """Count and call torch's all-gather."""
        self._tally.count_all_gather(input_tensor)
        return super().__call__(output_tensor, input_tensor, group, async_op)


class CountedScatter(DefaultReduceScatter):
    """The reduce-scatter of a block's gradients, counted."""

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
        """Count and call torch's reduce-scatter."""
        self._tally.count_reduce_scatter(input_tensor)
        return super().__call__(output_tensor, input_tensor, group, op, async_op)
