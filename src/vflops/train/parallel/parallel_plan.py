"""The parallel plan: how ranks share the training of one PyTorch model.

It adds to the group of ranks what depends on the model: the mesh of devices, how the model is
placed and wrapped, the backward pass, and the contents of a checkpoint.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh

from vflops.config.training import TrainSettings
from vflops.record.files.document import Data
from vflops.train.initial_model import InitialWeights
from vflops.train.normalisation import convert
from vflops.train.objective import Objective
from vflops.train.parallel.optimizer_state import load_optimizer, optimizer_by_name
from vflops.train.parallel.rank_group import RankGroup
from vflops.workloads.contract.workload import Inputs, Summary, Workload


class ParallelPlan(RankGroup):
    """How ranks share the training of one PyTorch model."""

    mesh: DeviceMesh | None = None
    """The devices of the ranks as a grid with named dimensions; None for one rank."""
    can_compile = True
    """Whether torch can compile the wrapped module."""
    commits_alone = False
    """Whether the leading rank has the whole state, so that it can commit to it alone."""
    has_whole_model = False
    """Whether each rank computes the whole model alone, so that its network may be a fused one."""
    steps_before_recording = 3
    """Number of steps that must be taken before one can be recorded as a CUDA graph."""

    @abstractmethod
    def normalise(self, model: nn.Module, settings: TrainSettings) -> nn.Module:
        """Return ``model`` with the kind of batch norm in the settings."""

    def place(
        self,
        model: nn.Module,
        workload: Workload,
        device: torch.device,
        weights: InitialWeights | None = None,
    ) -> nn.Module:
        """Return this rank's part of ``model`` on its device; by default all of it.

        A model on the meta device starts with ``weights``. Only part of it may have its values
        until it is wrapped.
        """
        return model.to(device, memory_format=torch.channels_last)  # type: ignore[call-overload, no-any-return]

    @abstractmethod
    def wrap(self, objective: Objective) -> nn.Module:
        """Return the module to train, which gives every rank the gradients of the whole batch."""

    def part(self, parameter: Tensor) -> Tensor:
        """Return the part of a wrapped parameter that this rank updates; by default all of it."""
        return parameter

    def predictor(self, objective: Objective) -> Callable[..., Tensor | None]:
        """Return a function that maps a batch to its predictions.

        All ranks call the function; it returns None on ranks without output.
        """
        return objective.evaluate

    def backward(
        self, wrapped: nn.Module, parts: Sequence[Inputs], scale: Callable[[Tensor], Tensor]
    ) -> Tensor:
        """Compute the gradients of the mean loss of ``parts``; return that loss.

        ``scale`` scales a loss for the backward pass.
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
        """Return a context in which each rank accumulates gradients without exchanging them."""

    @abstractmethod
    def mean(self, value: Tensor) -> Tensor:
        """Return the mean of a device scalar over the copies of the model, still on the device."""

    def maximum(self, value: Tensor) -> Tensor:
        """Return the maximum over the ranks of a device scalar, such as an overflow flag."""
        return value

    @abstractmethod
    def synchronise_buffers(self, model: nn.Module) -> None:
        """Make the model's buffers equal on all ranks, before an evaluation or a checkpoint."""

    def collect(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Any] | None:
        """Return the state of model and optimizer on the leading rank, for a checkpoint; else None.

        Both are complete and keyed by parameter name, so that any other plan can resume from the
        checkpoint. All ranks call it.
        """
        if not self.leads:
            return None
        return {"model": model.state_dict(), "optimizer": optimizer_by_name(model, optimizer)}

    def restore(
        self, contents: Mapping[str, Any], model: nn.Module, optimizer: torch.optim.Optimizer
    ) -> None:
        """Load what ``collect`` returned into the model and the optimizer, on every rank."""
        model.load_state_dict(dict(contents["model"]))
        load_optimizer(model, optimizer, contents["optimizer"])

    def full_state(self, model: nn.Module) -> dict[str, Tensor] | None:
        """Return the whole model's state on the leading rank, else None; all ranks call it."""
        return model.state_dict() if self.leads else None

    @property
    def can_be_recorded(self) -> bool:
        """Whether a step can be recorded as a CUDA graph, its messages between ranks included."""
        return False

    @contextmanager
    def counting_replays(self) -> Iterator[None]:
        """Count the traffic of the step that is recorded in the block; each replay repeats it."""
        yield

    def count_replay(self) -> None:
        """Count the traffic of the recorded step once more."""

    def report(self) -> list[tuple[str, Data]]:
        """Return the plan's events after training, as pairs of kind and payload.

        All ranks call it; only the events of the first rank are written.
        """
        return []


class SingleRank(ParallelPlan):
    """The plan for a single rank, which exchanges nothing."""

    rank, ranks, agree_every = 0, 1, 1
    commits_alone = has_whole_model = can_be_recorded = True

    def normalise(self, model: nn.Module, settings: TrainSettings) -> nn.Module:
        """Convert to ghost batch norm if the settings say so; nothing needs synchronisation."""
        return convert(model, "ghost", ghosts=settings.ghosts) if settings.ghosts > 1 else model

    def wrap(self, objective: Objective) -> nn.Module:
        """Return the objective itself."""
        return objective

    def local_gradients(self, wrapped: nn.Module) -> AbstractContextManager[object]:
        """Return an empty context."""
        return nullcontext()

    def mean(self, value: Tensor) -> Tensor:
        """Return the value itself."""
        return value

    def synchronise_buffers(self, model: nn.Module) -> None:
        """Do nothing."""

    def gather(self, value: Summary) -> list[Summary]:
        """Return the only value."""
        return [value]

    def texts(self, text: str) -> list[str]:
        """Return the only text."""
        return [text]

    def agree(self, value: int) -> int:
        """Return ``value``."""
        return value

    def barrier(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""
