"""The contract that every workload of the training engine meets.

A workload says what the model, the data, the loss and the quality are. It knows nothing of ranks,
precisions, devices, checkpoints or clocks: those are the engine's.
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
from vflops.record.formats.graph import Graph
from vflops.record.formats.job import DataFacts
from vflops.workloads.contract.code import WorkloadCode

Split = Literal["train", "validation", "test"]
Indices = NDArray[np.int64]
Inputs = tuple[Tensor, ...]
"""What the model and the loss see of a batch, on the device: first the model's own inputs."""
Summary = Mapping[str, float | NDArray[Any]]
"""What a rank has seen: numbers, and arrays whose first dimension may differ between ranks."""


class Samples(Protocol):
    """One split of the data, read by index."""

    def __len__(self) -> int:
        """How many samples there are."""

    def read(self, indices: Indices, room: BatchMemory) -> tuple[Tensor, ...]:
        """These samples as host tensors, in memory that ``room`` lends."""


class Meter(ABC):
    """Adds up what the quality needs over the batches of an evaluation, without a host sync."""

    @abstractmethod
    def update(self, predictions: Tensor, inputs: Inputs, valid: Tensor) -> None:
        """Add a batch; where ``valid`` is False a sample only fills it up."""

    @abstractmethod
    def summary(self) -> Summary:
        """What this rank has seen, to be put together with that of the others."""


class Workload(WorkloadCode):
    """What is trained; each rank makes one, with the settings and the data of the job."""

    model_inputs: ClassVar[int] = 1
    """How many of a batch's inputs the model takes; the loss sees all of them."""

    can_be_recorded: ClassVar[bool] = False
    """Whether model and loss are the same kernels at every step, with no look at their values.

    Then one rank on a CUDA device records a whole step once and replays it.
    """

    @property
    def draws(self) -> int:
        """Random numbers in [0, 1) that ``inputs`` gets for each training sample."""
        return 0

    @classmethod
    def work(cls, settings: WorkloadSettings, data: DataFacts, name: str) -> Graph:
        """The operation graph of the forward pass of one rank's batch."""
        workload = cls.create(settings, data)
        specs = workload.input_specs()
        batch = settings.train.rank_batch

        def loss(outputs: Any) -> Tensor:
            inputs = tuple(
                torch.empty((batch, *spec.shape), dtype=getattr(torch, spec.dtype), device="meta")
                for spec in specs
            )
            return workload.loss(outputs, inputs)

        taken = specs[: workload.model_inputs]
        return capture(workload.model, taken, name=name, batch=batch, loss=loss)

    @classmethod
    @abstractmethod
    def create(cls, settings: WorkloadSettings, data: DataFacts) -> Workload:
        """The workload with its data open."""

    @abstractmethod
    def model(self) -> nn.Module:
        """A new model; torch's random numbers are seeded by the caller."""

    def fast_model(self, dtype: torch.dtype, device: torch.device) -> nn.Module | None:
        """The same model, arranged for training in ``dtype`` on ``device``; None: there is none.

        It is not compiled, only recorded.
        """
        return None

    @abstractmethod
    def samples(self, split: Split) -> Samples:
        """A split of the data."""

    @abstractmethod
    def inputs(self, batch: tuple[Tensor, ...], draws: Tensor | None, dtype: torch.dtype) -> Inputs:
        """A batch made ready on the device; ``draws`` is None in evaluation.

        In the order of ``input_specs``, with static shapes and without a host sync; ``dtype`` is
        that of the model's own inputs.
        """

    @abstractmethod
    def input_specs(self) -> Sequence[InputSpec]:
        """What ``inputs`` gives for one sample, the model's own first: its work is counted so."""

    @abstractmethod
    def loss(self, outputs: Any, inputs: Inputs) -> Tensor:
        """The training loss, a mean over the batch's samples."""

    @abstractmethod
    def predict(self, outputs: Any) -> Tensor:
        """Predictions in a form that several models' can be combined in, a row a sample."""

    @abstractmethod
    def meter(self, device: torch.device) -> Meter:
        """A new meter of the quality."""

    @abstractmethod
    def quality(self, summaries: Sequence[Summary]) -> float:
        """The quality that the ranks' summaries give together."""

    def exhibit(self, summaries: Sequence[Summary]) -> Mapping[str, NDArray[Any]] | None:
        """What the report can show of the last evaluation; None: nothing but its figures.

        The function that the spec names as ``exhibit`` turns these arrays into figures.
        """
        return None
