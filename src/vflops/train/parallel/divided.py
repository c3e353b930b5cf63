"""Tensors that are divided between ranks, assembled for checkpoints and divided when loaded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from vflops.config.parallel import AllReduceAlgorithm
from vflops.config.training import TrainSettings
from vflops.train.normalisation import average_buffers, convert
from vflops.train.parallel.group import GroupPlan
from vflops.train.parallel.optimizer_state import (
    OptimizerState,
    load_optimizer,
    local,
    optimizer_by_name,
)


@dataclass(frozen=True)
class Division:
    """How a tensor is divided: as by ``torch.chunk``, where the last parts may be smaller."""

    dimension: int
    size: int
    """Size of the whole tensor in this dimension."""

    def part(self, whole: Tensor, number: int, parts: int) -> Tensor:
        """Return part ``number`` of ``whole``, which may be empty if there are many parts."""
        step = -(-self.size // parts)
        start = min(number * step, self.size)
        return whole.narrow(self.dimension, start, min(step, self.size - start))

    def assemble(self, part: Tensor, group: dist.ProcessGroup) -> Tensor:
        """Return the tensor assembled from the parts of ``group``'s ranks, which all call it."""
        parts = dist.get_world_size(group)
        shape = list(part.shape)
        shape[self.dimension] = -(-self.size // parts)
        padded = part.new_zeros(shape)
        padded.narrow(self.dimension, 0, part.shape[self.dimension]).copy_(part)
        gathered = [torch.empty_like(padded) for _ in range(parts)]
        dist.all_gather(gathered, padded, group=group)
        return torch.cat(gathered, self.dimension).narrow(self.dimension, 0, self.size)


class DividedPlan(GroupPlan):
    """A plan in which each rank has a part of some tensors; there may be several copies."""

    _copies: dist.ProcessGroup
    """The ranks with the same parts and different samples."""
    _parts: dist.ProcessGroup
    """The ranks that together have one copy of the model."""

    def __init__(
        self,
        rank: int,
        ranks: int,
        device: torch.device,
        store: str,
        algorithm: AllReduceAlgorithm = "auto",
    ) -> None:
        super().__init__(rank, ranks, device, store, algorithm)
        self._divisions: dict[str, Division] = {}
        """Divisions by name of the parameter or buffer."""

    def normalise(self, model: nn.Module, settings: TrainSettings) -> nn.Module:
        """Convert batch norm to use a copy's samples, parts of them, or those of all copies."""
        if settings.batch_norm == "synchronised":
            return convert(model, "synchronised", group=self._copies)
        return convert(model, "ghost", ghosts=settings.ghosts) if settings.ghosts > 1 else model

    def synchronise_buffers(self, model: nn.Module) -> None:
        """Average the running statistics over the copies."""
        average_buffers(model, self._copies)

    def collect(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Any] | None:
        """Assemble the state tensor by tensor; only the leading rank returns it."""
        whole = self.full_state(model)
        states = optimizer_by_name(model, optimizer, self.part)
        state = {name: self._assembled(name, tensors) for name, tensors in states.items()}
        return None if whole is None else {"model": whole, "optimizer": state}

    def restore(
        self, contents: dict[str, Any], model: nn.Module, optimizer: torch.optim.Optimizer
    ) -> None:
        """Load this rank's parts of the whole tensors."""
        whole: dict[str, Tensor] = contents["model"]
        with torch.no_grad():
            for name, tensor in model.state_dict().items():
                local(tensor).copy_(self._cut(name, whole[name]))
        saved: OptimizerState = contents["optimizer"]
        state = {
            name: {
                key: self._cut(name, value) if _is_like(value, whole[name]) else value
                for key, value in values.items()
            }
            for name, values in saved.items()
        }
        load_optimizer(model, optimizer, state, self.part)

    def full_state(self, model: nn.Module) -> dict[str, Tensor] | None:
        """Assemble the state tensor by tensor; only the leading rank returns it."""
        parts = {name: local(tensor) for name, tensor in model.state_dict().items()}
        whole: dict[str, Tensor] = {}
        for name, tensor in parts.items():
            whole |= self._assembled(name, {name: tensor})
        return whole if self.leads else None

    def _assembled(self, name: str, tensors: dict[str, Any]) -> dict[str, Any]:
        """Return the whole ``tensors`` of the parameter ``name`` on the leading rank."""
        division = self._divisions.get(name)
        whole = {}
        for key, value in tensors.items():
            if division is not None and isinstance(value, Tensor) and value.dim():
                value = division.assemble(value, self._parts)
            if self.leads:
                whole[key] = value.cpu() if isinstance(value, Tensor) else value
        return whole

    def _cut(self, name: str, whole: Tensor) -> Tensor:
        division = self._divisions.get(name)
        if division is None:
            return whole
        number, parts = dist.get_rank(self._parts), dist.get_world_size(self._parts)
        return division.part(whole, number, parts)


def _is_like(value: object, parameter: Tensor) -> bool:
    return isinstance(value, Tensor) and value.shape == parameter.shape
