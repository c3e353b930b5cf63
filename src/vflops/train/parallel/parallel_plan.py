"""The parallel plan: all that depends on how ranks share the training of one model.

The loop asks this object and knows nothing of ranks itself: the mesh of devices, where inputs enter
and the loss is, how the model is wrapped, what the ranks agree on, how a checkpoint is laid out.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh

from vflops.config.training import TrainSettings
from vflops.record.files.document import Data
from vflops.train.normalisation import convert
from vflops.train.objective import Objective
from vflops.train.parallel.optimizer_state import OptimizerState, load_optimizer, optimizer_by_name
from vflops.workloads.contract.workload import Inputs, Summary, Workload


class ParallelPlan(ABC):
    """How ranks work together on one model."""

    rank: int
    ranks: int
    agree_every: int
    """Steps between two calls of ``agree``."""
    mesh: DeviceMesh | None = None
    """The ranks' devices and the dimensions they are arranged in; None for one rank."""
    takes_input = True
    """Whether this rank needs the samples: for the model's input, or for the loss."""
    can_compile = True
    """Whether torch's compiler takes the wrapped module."""
    has_output = True
    """Whether the model's output, and so the loss, is computed on this rank."""

    @property
    def leads(self) -> bool:
        """Whether this rank writes the log and the checkpoints."""
        return self.rank == 0

    @property
    def share(self) -> int:
        """The number of this rank's part of each batch; ranks that share a model have the same."""
        return self.rank

    @property
    def shares(self) -> int:
        """Parts that a batch is divided in."""
        return self.ranks

    @abstractmethod
    def normalise(self, model: nn.Module, settings: TrainSettings) -> nn.Module:
        """``model`` with the batch norm that the settings ask for."""

    def place(self, model: nn.Module, workload: Workload, device: torch.device) -> nn.Module:
        """What this rank holds of ``model``, on its device; here the whole of it."""
        return model.to(device, memory_format=torch.channels_last)  # type: ignore[call-overload, no-any-return]

    @abstractmethod
    def wrap(self, objective: Objective) -> nn.Module:
        """The module to train: its gradients are those of the whole batch."""

    def part(self, parameter: Tensor) -> Tensor:
        """What the optimizer of this rank works on of a wrapped parameter; here all of it."""
        return parameter

    def predictor(self, objective: Objective) -> Callable[..., Tensor | None]:
        """From a batch to predictions, called by all ranks; None where there is no output."""
        return objective.evaluate

    def backward(
        self, wrapped: nn.Module, parts: Sequence[Inputs], scale: Callable[[Tensor], Tensor]
    ) -> Tensor:
        """The gradients of the mean loss of ``parts``, left in the weights, and that loss.

        ``scale`` makes of a loss what the backward pass starts from.
        """
        total: Tensor | None = None
        for number, inputs in enumerate(parts, start=1):
            last = number == len(parts)
            with nullcontext() if last else self.local_gradients(wrapped):
                loss = wrapped(*inputs) / len(parts)
                scale(loss).backward()
            total = loss.detach() if total is None else total + loss.detach()
        assert total is not None
        return self.mean(total)

    @abstractmethod
    def local_gradients(self, wrapped: nn.Module) -> AbstractContextManager[object]:
        """A context in which gradients add up on the rank and are not exchanged."""

    @abstractmethod
    def mean(self, value: Tensor) -> Tensor:
        """The mean of a device scalar over the copies of the model, without waiting for it."""

    def worst(self, found: Tensor) -> Tensor:
        """The largest of the ranks' device scalars: an overflow on one is one on all."""
        return found

    @abstractmethod
    def settle(self, model: nn.Module) -> None:
        """Make the model's buffers the same on all ranks, before evaluation or a checkpoint."""

    @abstractmethod
    def gather(self, value: Summary) -> list[Summary]:
        """The values of the ranks that have an output, by rank, on every rank."""

    @abstractmethod
    def agree(self, wish: int) -> int:
        """The largest wish of all ranks, the same on every rank."""

    def collect(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Any] | None:
        """What a checkpoint holds of the model, on the rank that writes it; None elsewhere.

        The whole model and the whole state of the optimizer by the parameters' names, whatever
        each rank holds: so any other plan can go on from it. All ranks call it.
        """
        if not self.leads:
            return None
        return {"model": model.state_dict(), "optimizer": optimizer_by_name(model, optimizer)}

    def spread(
        self, contents: dict[str, Any], model: nn.Module, optimizer: torch.optim.Optimizer
    ) -> None:
        """Put what ``collect`` gave back into the model, on every rank."""
        model.load_state_dict(contents["model"])
        state: OptimizerState = contents["optimizer"]
        load_optimizer(model, optimizer, state)

    def whole(self, model: nn.Module) -> dict[str, Tensor] | None:
        """The state of the whole model, on the leading rank; None elsewhere. All ranks call it."""
        return model.state_dict() if self.leads else None

    def report(self) -> list[tuple[str, Data]]:
        """What the plan has to say after a training: kinds of events and their payloads.

        All ranks call it; the first one's is written.
        """
        return []

    @abstractmethod
    def barrier(self) -> None:
        """Wait until all ranks are here."""

    @abstractmethod
    def close(self) -> None:
        """Leave the group."""


class SingleRank(ParallelPlan):
    """One rank: nothing is exchanged."""

    rank, ranks, agree_every = 0, 1, 1

    def normalise(self, model: nn.Module, settings: TrainSettings) -> nn.Module:
        """With one rank, synchronised batch norm is plain batch norm."""
        return convert(model, "ghost", ghosts=settings.ghosts) if settings.ghosts > 1 else model

    def wrap(self, objective: Objective) -> nn.Module:
        """The objective itself."""
        return objective

    def local_gradients(self, wrapped: nn.Module) -> AbstractContextManager[object]:
        """Nothing is exchanged anyway."""
        return nullcontext()

    def mean(self, value: Tensor) -> Tensor:
        """The value itself."""
        return value

    def settle(self, model: nn.Module) -> None:
        """There is no other rank."""

    def gather(self, value: Summary) -> list[Summary]:
        """The only value."""
        return [value]

    def agree(self, wish: int) -> int:
        """The only wish."""
        return wish

    def barrier(self) -> None:
        """Nobody to wait for."""

    def close(self) -> None:
        """There is no group."""
