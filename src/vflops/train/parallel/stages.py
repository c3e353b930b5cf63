"""The stages of a cut model that a rank computes, as modules over the model's own layers."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import torch.distributed as dist
from torch import Tensor, fx, nn
from torch.distributed.pipelining import PipelineStage

from vflops.train.communication import Tally
from vflops.train.parallel.cut import StageCut
from vflops.train.parallel.message import Layout
from vflops.workloads.contract.workload import Inputs


@dataclass
class Batch:
    """The parts of a batch that the stages of a rank look up by their numbers."""

    parts: Sequence[Inputs] = ()
    losses: list[Tensor] = field(default_factory=list)


class Stage(nn.Module):
    """One stage: what it receives and what it takes of a part of the batch, to what it sends."""

    def __init__(
        self,
        model: nn.Module,
        cut: StageCut,
        batch: Batch,
        autocast: Callable[[], AbstractContextManager[Any]],
    ) -> None:
        super().__init__()
        self.cut = cut
        self._batch, self._autocast = batch, autocast
        self._graph = fx.GraphModule(model, cut.graph)
        self.receives: list[Layout] = []
        self.sends: list[Layout] = []
        """Empty where that is the model's output."""
        self.outputs = 1
        """Tensors that it makes."""

    def forward(self, *received: Tensor, part: Tensor) -> Any:
        """From what is received to what is sent, for the part of the batch of number ``part``."""
        taken = [how.unpacked(each) for how, each in zip(self.receives, received, strict=True)]
        made = self.run(taken, self._batch.parts[int(part)] if self.cut.inputs else ())
        if not self.sends:
            return made
        return tuple(how.packed(each) for how, each in zip(self.sends, made, strict=True))

    def run(self, received: Sequence[Tensor], inputs: Inputs) -> Any:
        """What the stage makes of tensors that were received and of its own inputs."""
        with self._autocast():
            return self._graph(*received, *(inputs[each] for each in self.cut.inputs))


class TimedStage(PipelineStage):
    """A stage of torch's pipelines that adds up the time in which its rank computes.

    What it sends is counted.
    """

    busy_s = 0.0
    tally: Tally

    def forward_one_chunk(self, *args: Any, **options: Any) -> Any:
        """The forward pass of a micro-batch; messages come before and after it."""
        started_s = time.perf_counter()
        try:
            return super().forward_one_chunk(*args, **options)
        finally:
            self.busy_s += time.perf_counter() - started_s

    def backward_one_chunk(self, *args: Any, **options: Any) -> Any:
        """The backward pass of a micro-batch."""
        started_s = time.perf_counter()
        try:
            return super().backward_one_chunk(*args, **options)
        finally:
            self.busy_s += time.perf_counter() - started_s

    def get_fwd_send_ops(self, fwd_chunk_id: int) -> list[dist.P2POp]:
        """What a micro-batch sends on."""
        return self._counted(super().get_fwd_send_ops(fwd_chunk_id))

    def get_bwd_send_ops(self, bwd_chunk_id: int) -> list[dist.P2POp]:
        """What its backward pass sends back."""
        return self._counted(super().get_bwd_send_ops(bwd_chunk_id))

    def _counted(self, messages: list[dist.P2POp]) -> list[dist.P2POp]:
        for each in messages:
            self.tally.sends(each.tensor, each.group_peer)
        return messages


def keep_only(model: nn.Module, cuts: Sequence[StageCut]) -> nn.Module:
    """``model`` with nothing but what the stages use, changed in place; names stay as they are."""
    uses = frozenset().union(*(cut.uses for cut in cuts))
    for path, module in list(model.named_modules()):
        if any(f"{path}.".startswith(f"{used}.") for used in uses):
            continue  # a stage calls it, or what it is in
        for held in (module._modules, module._parameters, module._buffers):
            for name in list(held):
                own = f"{path}.{name}".lstrip(".")
                if not any(f"{used}.".startswith(f"{own}.") for used in uses):
                    del held[name]
    return model
