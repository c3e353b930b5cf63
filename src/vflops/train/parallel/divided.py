"""Tensors of which each rank keeps a part: put together for a checkpoint, and cut again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

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
    """How a tensor is divided: as ``torch.chunk`` does it, so that the last parts may be short."""

    dimension: int
    size: int
    """Of the whole tensor in this dimension."""

    def part(self, whole: Tensor, number: int, parts: int) -> Tensor:
        """The part ``number`` of ``whole``; an empty one where there are more parts than rows."""
        step = -(-self.size // parts)
        start = min(number * step, self.size)
        return whole.narrow(self.dimension, start, min(step, self.size - start))

    def whole(self, part: Tensor, group: dist.ProcessGroup) -> Tensor:
        """The tensor that the parts of ``group``'s ranks make; all of them call it."""
        parts = dist.get_world_size(group)
        shape = list(part.shape)
        shape[self.dimension] = -(-self.size // parts)
        own = part.new_zeros(shape)
        own.narrow(self.dimension, 0, part.shape[self.dimension]).copy_(part)
        every = [torch.empty_like(own) for _ in range(parts)]
        dist.all_gather(every, own, group=group)
        return torch.cat(every, self.dimension).narrow(self.dimension, 0, self.size)


class DividedPlan(GroupPlan):
    """Ranks of which each keeps a part of some tensors, and perhaps other copies of the parts."""

    _copies: dist.ProcessGroup
    """The ranks whose samples differ."""
    _parts: dist.ProcessGroup
    """The ranks that have a copy of the model between them."""

    def __init__(self, rank: int, ranks: int, device: torch.device, store: str) -> None:
        super().__init__(rank, ranks, device, store)
        self._divisions: dict[str, Division] = {}
        """By the names of parameters and buffers."""

    def normalise(self, model: nn.Module, settings: TrainSettings) -> nn.Module:
        """Batch norm over the samples of a copy, parts of them, or those of all copies."""
        if settings.batch_norm == "synchronised":
            return convert(model, "synchronised", group=self._copies)
        return convert(model, "ghost", ghosts=settings.ghosts) if settings.ghosts > 1 else model

    def settle(self, model: nn.Module) -> None:
        """The mean of the running statistics over the copies."""
        average_buffers(model, self._copies)

    def collect(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Any] | None:
        """Put together tensor by tensor; only the leading rank keeps them."""
        whole = self.whole(model)
        states = optimizer_by_name(model, optimizer, self.part)
        state = {name: self._put_together(name, each) for name, each in states.items()}
        return None if whole is None else {"model": whole, "optimizer": state}

    def spread(
        self, contents: dict[str, Any], model: nn.Module, optimizer: torch.optim.Optimizer
    ) -> None:
        """Each rank takes its parts of the whole tensors."""
        whole: dict[str, Tensor] = contents["model"]
        with torch.no_grad():
            for name, tensor in model.state_dict().items():
                local(tensor).copy_(self._cut(name, whole[name]))
        saved: OptimizerState = contents["optimizer"]
        state = {
            name: {
                key: self._cut(name, value) if _is_like(value, whole[name]) else value
                for key, value in each.items()
            }
            for name, each in saved.items()
        }
        load_optimizer(model, optimizer, state, self.part)

    def whole(self, model: nn.Module) -> dict[str, Tensor] | None:
        """Put together tensor by tensor; only the leading rank keeps them."""
        own = {name: local(tensor) for name, tensor in model.state_dict().items()}
        kept: dict[str, Tensor] = {}
        for name, tensor in own.items():
            kept |= self._put_together(name, {name: tensor})
        return kept if self.leads else None

    def _put_together(self, name: str, tensors: dict[str, Any]) -> dict[str, Any]:
        """``tensors`` of the parameter ``name`` as the leading rank keeps them."""
        division = self._divisions.get(name)
        found = {}
        for key, value in tensors.items():
            if division is not None and isinstance(value, Tensor) and value.dim():
                value = division.whole(value, self._parts)
            if self.leads:
                found[key] = value.cpu() if isinstance(value, Tensor) else value
        return found

    def _cut(self, name: str, whole: Tensor) -> Tensor:
        division = self._divisions.get(name)
        if division is None:
            return whole
        number, parts = dist.get_rank(self._parts), dist.get_world_size(self._parts)
        return division.part(whole, number, parts)


def _is_like(value: object, parameter: Tensor) -> bool:
    return isinstance(value, Tensor) and value.shape == parameter.shape
