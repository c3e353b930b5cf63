"""The state of an optimizer by parameter names, independent of how ranks share the model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

OptimizerState = dict[str, dict[str, Any]]
"""The optimizer's state of each parameter, by its name."""


Part = Callable[[Tensor], Tensor]
"""Maps a parameter of the model to the tensor that the optimizer updates."""


def all_of_it(parameter: Tensor) -> Tensor:
    """Return ``parameter``: the part of a rank that has all of it."""
    return parameter


def optimizer_by_name(
    model: nn.Module, optimizer: torch.optim.Optimizer, part: Part = all_of_it
) -> OptimizerState:
    """Return the state of ``optimizer`` by parameter names, without its settings."""
    names = _names(model, part)
    return {names[parameter]: dict(state) for parameter, state in optimizer.state.items()}


def load_optimizer(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    state: OptimizerState,
    part: Part = all_of_it,
) -> None:
    """Load ``state`` into ``optimizer``, which may have only some of its parameters."""
    names = _names(model, part)
    layout = optimizer.state_dict()
    own_names = [names[p] for group in optimizer.param_groups for p in group["params"]]
    layout["state"] = {
        number: state[name] for number, name in enumerate(own_names) if name in state
    }
    optimizer.load_state_dict(layout)


def local(tensor: Tensor) -> Tensor:
    """Return this rank's part of ``tensor``, in the same memory."""
    part: Tensor = tensor.to_local() if hasattr(tensor, "to_local") else tensor
    return part.detach()


def _names(model: nn.Module, part: Part) -> dict[Tensor, str]:
    return {part(parameter): name for name, parameter in model.named_parameters()}
