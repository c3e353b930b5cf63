"""The interface of a workload that the training engine trains.

A workload defines the model, the data, the loss and the quality. Ranks, precision, devices,
checkpoints and timing are handled by the engine.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from vflops.config.training import WorkloadSettings
from vflops.counting.capture import InputSpec, capture
from vflops.data.batch_memory import BatchMemory
from vflops.data.packed_folder import PackedSplit
from vflops.record.formats.graph import Graph
from vflops.record.formats.job import DataFacts
from vflops.workloads.contract.classifier import Arrays
from vflops.workloads.contract.code import WorkloadCode

Split = Literal["train", "validation", "test"]
Indices = NDArray[np.int64]
Inputs = tuple[Tensor, ...]
"""A batch on the device as the model and the loss take it: the model's inputs come first."""
Exhibits = Mapping[str, NDArray[Any]]
"""Arrays for the report, by name."""
Summary = Mapping[str, float | NDArray[Any]]
"""The measurements of one rank: numbers, and arrays whose first dimension may differ by rank."""


class Samples(Protocol):
    """One split of the data, read by index."""

    def __len__(self) -> int:
        """Return the number of samples."""

    def read(self, indices: Indices, memory: BatchMemory) -> tuple[Tensor, ...]:
        """Return the samples at ``indices`` as host tensors, in buffers of ``memory``."""


class Meter(ABC):
    """Accumulates the quality over the batches of an evaluation, without synchronising the host."""

    @abstractmethod
    def update(self, predictions: Tensor, inputs: Inputs, valid: Tensor) -> None:
        """Add a batch; samples for which ``valid`` is False are padding."""

    @abstractmethod
    def summary(self) -> Summary:
        """Return what this rank has measured, to be merged with the other ranks' summaries."""


class Workload(WorkloadCode):
    """A model, its data, its loss and its quality; every rank of a job creates one."""

    model_inputs: ClassVar[int] = 1
    """How many of a batch's inputs the model takes; the loss takes all of them."""

    can_be_recorded: ClassVar[bool] = False
    """Whether model and loss launch the same kernels at every step, whatever the values.

    If so, a single rank on a CUDA device records a whole step once and replays it.
    """

    exhibits_model: ClassVar[bool] = False
    """Whether ``exhibit_model`` uses the trained model to make examples for the report."""

    @property
    def draws(self) -> int:
        """How many random numbers in [0, 1) ``inputs`` takes for each training sample."""
        return 0

    @classmethod
    def work(cls, settings: WorkloadSettings, data: DataFacts, name: str) -> Graph:
        """Return the operation graph of the forward pass on one rank's batch."""
        workload = cls.create(settings, data)
        specs = workload.input_specs()
        batch = settings.train.rank_batch

        def loss(outputs: Any) -> Tensor:
            inputs = tuple(
                torch.empty((batch, *spec.shape), dtype=getattr(torch, spec.dtype), device="meta")
                for spec in specs
            )
            return workload.loss(outputs, inputs)

        model_specs = specs[: workload.model_inputs]
        return capture(
            workload.model,
            model_specs,
            name=name,
            batch=batch,
            loss=loss,
            # Tests prove that the backward pass of our networks follows from the forward pass.
            run_backward=not cls.__module__.startswith("vflops."),
        )

    @classmethod
    @abstractmethod
    def create(cls, settings: WorkloadSettings, data: DataFacts) -> Workload:
        """Return the workload with its data opened."""

    @abstractmethod
    def model(self) -> nn.Module:
        """Return a new model; the caller has seeded torch's random numbers."""

    def initial_weights(self, seed: int) -> Arrays | None:
        """Return the initial state of the model, by the names of its state in PyTorch.

        It is the same in every framework and on every rank. None, the default, keeps what
        ``model`` returns; then only PyTorch can train the workload.
        """
        return None

    def fast_model(self, dtype: torch.dtype, device: torch.device) -> nn.Module | None:
        """Return a faster implementation of the model for ``dtype`` and ``device``, if any.

        It is recorded but not compiled.
        """
        return None

    @abstractmethod
    def samples(self, split: Split) -> Samples:
        """Return one split of the data."""

    def read_splits(self) -> Mapping[str, PackedSplit]:
        """Return the splits that were read so far and whose samples were compared, by name.

        Empty if the workload reads data that has no digests of its samples.
        """
        return {}

    @abstractmethod
    def inputs(self, batch: tuple[Tensor, ...], draws: Tensor | None, dtype: torch.dtype) -> Inputs:
        """Return the batch prepared on the device: normalised, and augmented in training.

        The order is that of ``input_specs``; shapes are static, and the host is not synchronised.
        ``draws`` holds the random numbers, None in evaluation; ``dtype`` is the type of the model's
        inputs.
        """

    @abstractmethod
    def input_specs(self) -> Sequence[InputSpec]:
        """Return shape and type of each of the ``inputs`` of one sample, to count operations."""

    @abstractmethod
    def loss(self, outputs: Any, inputs: Inputs) -> Tensor:
        """Return the training loss, a mean over the samples of the batch."""

    @abstractmethod
    def predict(self, outputs: Any) -> Tensor:
        """Return predictions that can be combined over several models, one row per sample."""

    @abstractmethod
    def meter(self, device: torch.device) -> Meter:
        """Return a new meter of the quality."""

    @abstractmethod
    def quality(self, summaries: Sequence[Summary]) -> float:
        """Return the quality that follows from the summaries of all ranks."""

    def validation_loss(self, summaries: Sequence[Summary]) -> float | None:
        """Return the mean loss of the evaluated samples, from the summaries of all ranks.

        None if the meter does not measure it; otherwise, ``WorkloadSpec.measures_loss`` must be
        True.
        """
        return None

    def exhibit_model(self, model: nn.Module, device: torch.device, seed: int) -> Exhibits:
        """Return arrays that show what the trained model does when it is used, for the report.

        Called once after training if ``exhibits_model``, on one rank that has the whole model, in
        evaluation mode, without gradients and in the precision of training. None of it is timed.
        The arrays join those of ``exhibit``.
        """
        return {}

    def exhibit(self, summaries: Sequence[Summary]) -> Exhibits | None:
        """Return arrays of the last evaluation that the report can show, if any.

        The function that ``WorkloadSpec.exhibit`` names turns them into figures.
        """
        return None
