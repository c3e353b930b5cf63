"""One update of the weights: forward pass, backward pass, gradient exchange and optimizer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from vflops.train.optimizers import set_learning_rate
from vflops.train.parallel.factory import ParallelPlan
from vflops.workloads.contract.workload import Inputs


@dataclass(frozen=True)
class Step:
    """A training step, which is a callable; the host does not wait for the device."""

    module: nn.Module
    """Maps a batch to its loss; wrapped by the parallel plan, and possibly compiled."""
    optimizer: torch.optim.Optimizer
    scaler: torch.amp.GradScaler
    plan: ParallelPlan
    warm_steps: ClassVar[int] = 1
    """Number of steps until all code is compiled."""

    def __call__(
        self, parts: Sequence[Inputs], learning_rate: float, *, set_rate: bool = True
    ) -> Tensor:
        """Update the weights with the mean gradient of ``parts``; return the mean loss."""
        if set_rate:
            set_learning_rate(self.optimizer, learning_rate)
        loss = self.plan.backward(self.module, parts, self.scaler.scale)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad(set_to_none=True)
        return loss


_WARM_PREDICTIONS = 2
_WARM_STEPS = 3
"""Steps before the recording, in which libraries choose kernels and allocate memory."""


class RecordedStep:
    """A step that is recorded as a CUDA graph and replayed with one launch instead of about 600.

    The first steps run without the graph, on the stream of the recording; they also train.
    """

    warm_steps: ClassVar[int] = _WARM_STEPS + 1

    def __init__(self, step: Step, device: torch.device, pool: Any = None) -> None:
        """``pool`` is the memory of the recording; recordings that never overlap can share it."""
        self._step, self._pool = step, pool
        self._stream = torch.cuda.Stream(device)
        self._graph: torch.cuda.CUDAGraph | None = None
        self._inputs: list[Inputs] = []
        self._loss: Tensor | None = None
        self._taken = 0

    @property
    def optimizer(self) -> torch.optim.Optimizer:
        """The optimizer of the step."""
        return self._step.optimizer

    def __call__(self, parts: Sequence[Inputs], learning_rate: float) -> Tensor:
        """Update the weights; return the mean loss, which is still on the device."""
        current = torch.cuda.current_stream()
        self._taken += 1
        if self._taken <= _WARM_STEPS:
            self._stream.wait_stream(current)
            with torch.cuda.stream(self._stream):
                loss = self._step(parts, learning_rate)
            current.wait_stream(self._stream)
            return loss
        if self._graph is None:
            self._record(parts, learning_rate)
        set_learning_rate(self.optimizer, learning_rate)
        for recorded, part in zip(self._inputs, parts, strict=True):
            for tensor, value in zip(recorded, part, strict=True):
                tensor.copy_(value)
        assert self._graph is not None and self._loss is not None
        self._graph.replay()
        return self._loss

    def _record(self, parts: Sequence[Inputs], learning_rate: float) -> None:
        self._inputs = [tuple(tensor.clone() for tensor in part) for part in parts]
        torch.cuda.synchronize()
        self._graph = torch.cuda.CUDAGraph()
        with _recording(self._graph, self._stream, self._pool):
            self._loss = self._step(self._inputs, learning_rate, set_rate=False)


class RecordedPrediction:
    """Predictions for batches of one shape, recorded as a CUDA graph; others are computed plainly.

    The first two batches of the shape are computed plainly too.
    """

    def __init__(
        self, predict: Callable[..., Tensor | None], device: torch.device, pool: Any = None
    ) -> None:
        self._predict, self._pool = predict, pool
        self._stream = torch.cuda.Stream(device)
        self._graph: torch.cuda.CUDAGraph | None = None
        self._inputs: Inputs = ()
        self._outputs: Tensor | None = None
        self._shapes: list[torch.Size] = []
        self._taken = 0

    def __call__(self, *inputs: Tensor) -> Tensor | None:
        """Return the predictions for a batch."""
        shapes = [tensor.shape for tensor in inputs]
        self._shapes = self._shapes or shapes
        if shapes != self._shapes:
            return self._predict(*inputs)
        self._taken += 1
        if self._taken <= _WARM_PREDICTIONS:
            return self._predict(*inputs)
        if self._graph is None:
            self._record(inputs)
        for tensor, value in zip(self._inputs, inputs, strict=True):
            tensor.copy_(value)
        assert self._graph is not None and self._outputs is not None
        self._graph.replay()
        return self._outputs.clone()  # the next batch overwrites it

    def _record(self, inputs: Inputs) -> None:
        self._inputs = tuple(tensor.clone() for tensor in inputs)
        torch.cuda.synchronize()
        self._graph = torch.cuda.CUDAGraph()
        with _recording(self._graph, self._stream, self._pool):
            self._outputs = self._predict(*self._inputs)


def _recording(graph: torch.cuda.CUDAGraph, stream: torch.cuda.Stream, pool: Any) -> Any:
    # Other threads keep reading and copying batches while this one records.
    return torch.cuda.graph(graph, pool=pool, stream=stream, capture_error_mode="thread_local")
