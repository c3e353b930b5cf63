"""One update of the weights: forward pass, backward pass, gradient exchange and optimizer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar

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

    def close(self) -> None:
        """Do nothing: there is nothing to free."""


_WARM_PREDICTIONS = 2


class Recorder:
    """The stream and the memory in which the work of a device is recorded as CUDA graphs.

    Recordings share both, because they never overlap.
    """

    def __init__(self, device: torch.device) -> None:
        self._stream = torch.cuda.Stream(device)
        self._pool = torch.cuda.graph_pool_handle()

    @contextmanager
    def stream(self) -> Iterator[None]:
        """Run the block on the stream of the recordings, after all earlier work of the device."""
        current = torch.cuda.current_stream()
        self._stream.wait_stream(current)
        with torch.cuda.stream(self._stream):
            yield
        current.wait_stream(self._stream)

    @contextmanager
    def recording(self) -> Iterator[torch.cuda.CUDAGraph]:
        """Record the work of the block, which is not executed; yield its graph."""
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        # Other threads keep reading and copying batches while this one records.
        with torch.cuda.graph(
            graph, pool=self._pool, stream=self._stream, capture_error_mode="thread_local"
        ):
            yield graph


class RecordedStep:
    """A step that is recorded as a CUDA graph and replayed with one launch instead of about 600.

    The first steps run without the graph, on the stream of the recording; they also train. In them,
    libraries choose kernels and allocate memory.
    """

    def __init__(self, step: Step, recorder: Recorder) -> None:
        self._step, self._recorder = step, recorder
        self.warm_steps = step.plan.steps_before_recording + 1
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
        self._taken += 1
        if self._taken < self.warm_steps:
            with self._recorder.stream():
                return self._step(parts, learning_rate)
        if self._graph is None:
            self._record(parts, learning_rate)
        else:
            self._step.plan.count_replay()
        set_learning_rate(self.optimizer, learning_rate)
        for recorded, part in zip(self._inputs, parts, strict=True):
            for tensor, value in zip(recorded, part, strict=True):
                tensor.copy_(value)
        assert self._graph is not None and self._loss is not None
        self._graph.replay()
        return self._loss

    def _record(self, parts: Sequence[Inputs], learning_rate: float) -> None:
        self._inputs = [tuple(tensor.clone() for tensor in part) for part in parts]
        with self._step.plan.counting_replays(), self._recorder.recording() as self._graph:
            self._loss = self._step(self._inputs, learning_rate, set_rate=False)

    def close(self) -> None:
        """Free the graph: a communicator cannot be closed before the graphs that use it."""
        if self._graph is not None:
            self._graph.reset()


class RecordedPrediction:
    """Predictions for batches of one shape, recorded as a CUDA graph; others are computed plainly.

    The first two batches of the shape are computed plainly too.
    """

    def __init__(self, predict: Callable[..., Tensor | None], recorder: Recorder) -> None:
        self._predict, self._recorder = predict, recorder
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
        with self._recorder.recording() as self._graph:
            self._outputs = self._predict(*self._inputs)
