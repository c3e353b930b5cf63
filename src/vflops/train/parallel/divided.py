"""Tensors that are divided between ranks, assembled for checkpoints and divided when loaded."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from vflops.config.parallel import AllReduceAlgorithm
from vflops.config.training import TrainSettings
from vflops.train.communication import Tally
from vflops.train.initial_model import separate
from vflops.train.normalisation import average_buffers, convert
from vflops.train.parallel.group import GroupPlan
from vflops.train.parallel.optimizer_state import (
    OptimizerState,
    load_optimizer,
    local,
    optimizer_by_name,
)
from vflops.train.state_file import StoredState

Gather = Callable[[Tensor], Tensor]
"""Returns the pieces of all ranks, stacked along a new first dimension."""


@dataclass(frozen=True)
class Division:
    """How a tensor is divided: as by ``torch.chunk``, where the last parts may be smaller."""

    dimension: int
    sections: tuple[int, ...]
    """Sizes of consecutive sections of this dimension; a part has a piece of each section."""

    def part(self, whole: Tensor, number: int, parts: int) -> Tensor:
        """Return part ``number`` of ``whole``, which may be empty if there are many parts."""
        size, expected = whole.shape[self.dimension], sum(self.sections)
        if size != expected:
            raise ValueError(f"dimension {self.dimension} has {size} elements, expected {expected}")
        ranges = self.ranges(number, parts)
        pieces = [whole.narrow(self.dimension, *some) for some in ranges]
        return pieces[0] if len(pieces) == 1 else torch.cat(pieces, self.dimension)

    def ranges(self, number: int, parts: int) -> list[tuple[int, int]]:
        """Return start and size of the pieces of part ``number``, one for each section."""
        found, first = [], 0
        for size in self.sections:
            step = -(-size // parts)
            start = min(number * step, size)
            found.append((first + start, min(step, size - start)))
            first += size
        return found

    def start(self, number: int, parts: int) -> int:
        """Return the index of part ``number`` in a tensor of one section."""
        (size,) = self.sections
        return min(number * -(-size // parts), size)

    def assemble(self, part: Tensor, number: int, parts: int, gather: Gather) -> Tensor:
        """Return the tensor assembled from the parts of all ranks, which all call it."""
        steps = [-(-size // parts) for size in self.sections]
        sizes = [
            min(step, size - min(number * step, size))
            for step, size in zip(steps, self.sections, strict=True)
        ]
        shape = list(part.shape)
        shape[self.dimension] = sum(steps)
        padded = part.new_zeros(shape)
        pieces = padded.split(steps, self.dimension)
        for piece, own in zip(pieces, part.split(sizes, self.dimension), strict=True):
            piece.narrow(self.dimension, 0, own.shape[self.dimension]).copy_(own)
        gathered = [item.split(steps, self.dimension) for item in gather(padded)]
        sections = [
            torch.cat(section, self.dimension).narrow(self.dimension, 0, size)
            for section, size in zip(zip(*gathered, strict=True), self.sections, strict=True)
        ]
        return sections[0] if len(sections) == 1 else torch.cat(sections, self.dimension)


@dataclass(frozen=True)
class DividedTensor:
    """How the ranks of a group divide a parameter, for optimizers that need the whole of it."""

    division: Division
    group: dist.ProcessGroup
    tally: Tally
    """Counts the traffic."""

    def whole(self, part: Tensor) -> Tensor:
        """Return the whole of a tensor that is divided as the parameter; all ranks call it."""
        number, parts = dist.get_rank(self.group), dist.get_world_size(self.group)
        return self.division.assemble(part, number, parts, self.tally.all_gather)

    def own(self, whole: Tensor) -> Tensor:
        """Return this rank's part."""
        number, parts = dist.get_rank(self.group), dist.get_world_size(self.group)
        return self.division.part(whole, number, parts)


class DividedPlan(GroupPlan):
    """A plan in which each rank has a part of some tensors; there may be several copies."""

    _copies: dist.ProcessGroup
    """The ranks with the same parts and different samples."""
    _parts: dist.ProcessGroup
    """The ranks that together have one copy of the model."""
    _tally: Tally

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
        self, contents: Mapping[str, Any], model: nn.Module, optimizer: torch.optim.Optimizer
    ) -> None:
        """Load this rank's parts of the whole tensors."""
        with torch.no_grad():
            for name, tensor in model.state_dict().items():
                local(tensor).copy_(self._own(name, contents["model"], name))
        state: OptimizerState = {
            name: {key: self._own(name, values, key) for key in values}
            for name, values in contents["optimizer"].items()
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
                value = division.assemble(value, *self._position, self._gather)
            if self.leads:
                whole[key] = value.cpu() if isinstance(value, Tensor) else value
        return whole

    def _gather(self, piece: Tensor) -> Tensor:
        pieces = piece.new_empty((dist.get_world_size(self._parts), *piece.shape))
        dist.all_gather(list(pieces), piece, group=self._parts)
        return pieces

    def _mark(self, parameter: Tensor, division: Division) -> None:
        """Let optimizers know that ``parameter`` is a part."""
        parameter.divided = DividedTensor(division, self._parts, self._tally)  # type: ignore[attr-defined]

    def _cut(self, name: str, whole: Tensor) -> Tensor:
        division = self._divisions.get(name)
        if division is None:
            return whole
        return division.part(whole, *self._position)

    def _own(self, name: str, values: Mapping[str, Any], key: str) -> Any:
        """Return this rank's part of what a checkpoint has for a parameter, in separate memory."""
        division = self._divisions.get(name)
        if isinstance(values, StoredState) and division is not None and division.dimension == 0:
            return values.rows(key, division.ranges(*self._position), sum(division.sections))
        value = values[key]
        is_divided = isinstance(value, Tensor) and value.dim() > 0
        return separate(self._cut(name, value)) if is_divided else value

    @property
    def _position(self) -> tuple[int, int]:
        """The number of this rank's part of the model, and the number of parts."""
        return dist.get_rank(self._parts), dist.get_world_size(self._parts)
