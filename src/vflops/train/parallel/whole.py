"""The state of an optimizer by the names of the parameters: the same whatever a rank holds."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

OptimizerState = dict[str, dict[str, Any]]
"""What an optimizer keeps of each parameter, by its name."""


def optimizer_by_name(model: nn.Module, optimizer: torch.optim.Optimizer) -> OptimizerState:
    """What ``optimizer`` keeps of ``model``'s parameters; its settings are the run's own."""
    names = _names(model)
    return {names[parameter]: dict(state) for parameter, state in optimizer.state.items()}


def load_optimizer(
    model: nn.Module, optimizer: torch.optim.Optimizer, state: OptimizerState
) -> None:
    """Give ``optimizer`` what it kept; it may have other parameters than the one that kept it."""
    names = _names(model)
    layout = optimizer.state_dict()
    mine = [names[each] for group in optimizer.param_groups for each in group["params"]]
    layout["state"] = {number: state[name] for number, name in enumerate(mine) if name in state}
    optimizer.load_state_dict(layout)


def _names(model: nn.Module) -> dict[torch.Tensor, str]:
    return {parameter: name for name, parameter in model.named_parameters()}
