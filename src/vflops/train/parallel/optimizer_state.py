"""The state of an optimizer by the names of the parameters: the same whatever a rank holds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

OptimizerState = dict[str, dict[str, Any]]
"""What an optimizer keeps of each parameter, by its name."""


Part = Callable[[Tensor], Tensor]
"""From a parameter of the model to what the optimizer works on."""


def all_of_it(parameter: Tensor) -> Tensor:
    """The part of a parameter where ranks have the whole of it."""
    return parameter


def optimizer_by_name(
    model: nn.Module, optimizer: torch.optim.Optimizer, part: Part = all_of_it
) -> OptimizerState:
    """What ``optimizer`` keeps of ``model``'s parameters; its settings are the run's own."""
    names = _names(model, part)
    return {names[parameter]: dict(state) for parameter, state in optimizer.state.items()}


def load_optimizer(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    state: OptimizerState,
    part: Part = all_of_it,
) -> None:
    """Give ``optimizer`` what it kept; it may have other parameters than the one that kept it."""
    names = _names(model, part)
    layout = optimizer.state_dict()
    mine = [names[each] for group in optimizer.param_groups for each in group["params"]]
    layout["state"] = {number: state[name] for number, name in enumerate(mine) if name in state}
    optimizer.load_state_dict(layout)


def local(tensor: Tensor) -> Tensor:
    """What this rank has of ``tensor``, in the same memory."""
    own: Tensor = tensor.to_local() if hasattr(tensor, "to_local") else tensor
    return own.detach()


def _names(model: nn.Module, part: Part) -> dict[Tensor, str]:
    return {part(parameter): name for name, parameter in model.named_parameters()}
