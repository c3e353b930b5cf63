"""The contract of a backend: one rank's model in training, in some framework.

It is all that the engine, the loop, evaluations and checkpoints know of the model. The samples,
their augmentation, the schedule and the clock are the same in all frameworks: torch prepares the
batches, and every framework trains on the same pixels.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, ClassVar, TypeVar

import torch
from torch import Tensor, nn

from vflops.machine.devices import is_out_of_memory
from vflops.record.files.document import Data
from vflops.record.formats.job_events import FrameworkCounted
from vflops.workloads.contract.workload import Inputs

Used = TypeVar("Used")


class Backend(ABC):
    """A model and its optimizer on one rank."""

    framework: ClassVar[str]
    version: str
    """The version of the framework."""
    device: torch.device
    """The device of batches and losses."""
    parameters: int
    """Number of trained parameters of the whole model."""
    compiled: bool
    """Whether a compiler made the step."""
    recorded = False
    """Whether the step is replayed as a CUDA graph."""
    warm_steps = 1
    """Number of steps until all code is compiled."""
    layers_of_8_bits = 0
    """Number of layers with products in fp8 or int8."""
    may_count = False
    """Whether ``own_count`` may return a count."""
    deterministic: bool
    """Whether the same steps give the same bits on the same device."""
    emulated: str | None = None
    """A note if the device computes in a wider type than that of the precision, and converts."""
    no_model_reason: str | None = "only models in PyTorch are used after training"
    """Why ``use_model`` cannot be called on the leading rank; None if it can."""
    commits_alone = True
    """Whether the leading rank has the whole state, so that it can commit to it alone."""

    @abstractmethod
    def take_step(self, parts: Sequence[Inputs], learning_rate: float) -> Tensor:
        """Update the weights with the mean gradient of ``parts``; return the mean loss.

        The loss may still be computed by the device: the host need not wait for it.
        """

    @abstractmethod
    def predict(self, *inputs: Tensor) -> Tensor | None:
        """Return the predictions for a batch, inside of ``evaluating``.

        All ranks call it; it returns None on ranks without output.
        """

    def evaluating(self) -> AbstractContextManager[None]:
        """Return a context in which the model predicts and does not train."""
        return nullcontext()

    @abstractmethod
    def collect(self) -> dict[str, Any] | None:
        """Return the state for a checkpoint on the leading rank, else None.

        ``model`` and ``optimizer`` are complete and have the names of PyTorch, so that every
        backend can resume from it; ``scaler`` is the state of the loss scale. The next step may
        change the tensors. All ranks call it, unless the backend ``commits_alone``.
        """

    @abstractmethod
    def restore(self, contents: Mapping[str, Any]) -> None:
        """Load what ``collect`` of any backend returned, on every rank."""

    @abstractmethod
    def weights(self) -> dict[str, Tensor] | None:
        """Return the whole model's state on the leading rank, else None; all ranks call it."""

    @abstractmethod
    def synchronise_buffers(self) -> None:
        """Make the running statistics equal on all ranks, before evaluations and checkpoints."""

    @abstractmethod
    def is_finite(self) -> bool:
        """Whether all weights of all ranks are finite; all ranks call it."""

    @abstractmethod
    def perturb(self, relative: float) -> None:
        """Change every weight by ``relative`` of itself, up or down at random but reproducibly."""

    def use_model(self, use: Callable[[nn.Module], Used]) -> Used:
        """Return what ``use`` returns for the whole model, unless there is a ``no_model_reason``.

        The model is in evaluation mode and in the precision of training, without gradients.
        """
        raise NotImplementedError(self.no_model_reason)

    def peak_memory_bytes(self) -> int | None:
        """Return the peak memory use of the accelerator; None if it is not known."""
        return None

    def is_out_of_memory(self, error: Exception) -> bool:
        """Whether an error of a step or a prediction means that memory ran out.

        Torch prepares the batches of all frameworks, and numpy copies them.
        """
        return isinstance(error, MemoryError) or (
            isinstance(error, RuntimeError) and is_out_of_memory(error)
        )

    def fitting_batch(self, batch: int) -> int | None:
        """Return how many samples fit, after ``batch`` did not; None if it is not known.

        This overwrites the weights.
        """
        return None

    def own_count(self, parts: Sequence[Inputs]) -> FrameworkCounted | None:
        """Return the operations of a step as the framework counts them; None if it does not."""
        return None

    def report(self) -> list[tuple[str, Data]]:
        """Return events after training, such as the traffic between ranks: kind and payload.

        All ranks call it; only the events of the first rank are written.
        """
        return []

    def close(self) -> None:
        """Free what must not outlive the ranks' connections."""
