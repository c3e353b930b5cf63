"""The stages of a pipeline on one rank, as modules that share the model's layers."""

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
    """The micro-batches of a step, which stages look up by number, and their losses."""

    parts: Sequence[Inputs] = ()
    losses: list[Tensor] = field(default_factory=list)


class Stage(nn.Module):
    """One stage, which maps received tensors and inputs of the model to the tensors sent."""

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
        """Layouts of the tensors sent; empty for the last stage."""
        self.outputs: tuple[Tensor, ...] = ()
        """Tensors on the meta device like those that the last stage returns."""

    def forward(self, *received: Tensor, part: Tensor) -> Any:
        """Return the tensors to send for micro-batch number ``part``, or the model's output."""
        layouts = zip(self.receives, received, strict=True)
        unpacked = [layout.unpacked(tensor) for layout, tensor in layouts]
        outputs = self.run(unpacked, self._batch.parts[int(part)] if self.cut.inputs else ())
        if not self.sends:
            return outputs
        return tuple(
            layout.packed(tensor) for layout, tensor in zip(self.sends, outputs, strict=True)
        )

    def run(self, received: Sequence[Tensor], inputs: Inputs) -> Any:
        """Return the output of the stage for received tensors and inputs of the model."""
        with self._autocast():
            return self._graph(*received, *(inputs[index] for index in self.cut.inputs))


class TimedStage(PipelineStage):
    """A stage of torch's pipelines that times its computation and counts its traffic."""

    busy_s = 0.0
    tally: Tally

    def forward_one_chunk(self, *args: Any, **options: Any) -> Any:
        """Run and time the forward pass of a micro-batch, without its messages."""
        started_s = time.perf_counter()
        try:
            return super().forward_one_chunk(*args, **options)
        finally:
            self.busy_s += time.perf_counter() - started_s

    def _validate_fwd_outputs(self, outputs: tuple[Tensor, ...]) -> None:
        """Check what is sent, in torch 2.11, which would also check the model's output.

        Training may return other shapes than evaluation, in which layouts are found.
        """
        if not self.is_last:
            super()._validate_fwd_outputs(outputs)  # type: ignore[misc]

    def backward_one_chunk(self, *args: Any, **options: Any) -> Any:
        """Run and time the backward pass of a micro-batch."""
        started_s = time.perf_counter()
        try:
            return super().backward_one_chunk(*args, **options)
        finally:
            self.busy_s += time.perf_counter() - started_s

    def get_fwd_send_ops(self, fwd_chunk_id: int) -> list[dist.P2POp]:
        """Return the messages that a forward pass sends, and count their bytes."""
        return self._count(super().get_fwd_send_ops(fwd_chunk_id))

    def get_bwd_send_ops(self, bwd_chunk_id: int) -> list[dist.P2POp]:
        """Return the messages that a backward pass sends, and count their bytes."""
        return self._count(super().get_bwd_send_ops(bwd_chunk_id))

    def _count(self, messages: list[dist.P2POp]) -> list[dist.P2POp]:
        for message in messages:
            self.tally.count_send(message.tensor, message.group_peer)
        return messages


def keep_only(model: nn.Module, cuts: Sequence[StageCut]) -> nn.Module:
    """Delete the layers of ``model`` that the stages do not use, in place; return the model."""
    uses = frozenset().union(*(cut.uses for cut in cuts))
    for path, module in list(model.named_modules()):
        if any(f"{path}.".startswith(f"{used}.") for used in uses):
            continue  # a stage uses this module or one that contains it
        for members in (module._modules, module._parameters, module._buffers):
            for name in list(members):
                full_name = f"{path}.{name}".lstrip(".")
                if not any(f"{used}.".startswith(f"{full_name}.") for used in uses):
                    del members[name]
    return model
