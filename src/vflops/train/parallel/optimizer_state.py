"""Optimizer state keyed by parameter name, independent of how ranks share the model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

OptimizerState = dict[str, dict[str, Any]]
"""The optimizer's state of each parameter, by the parameter's name."""


Part = Callable[[Tensor], Tensor]
"""Maps a parameter of the model to the tensor that the optimizer updates."""


def whole_parameter(parameter: Tensor) -> Tensor:
    """Return ``parameter``, for ranks that update all of it."""
    return parameter


def optimizer_by_name(
    model: nn.Module, optimizer: torch.optim.Optimizer, part: Part = whole_parameter
) -> OptimizerState:
    """Return the state of ``optimizer`` by parameter name, without its settings."""
    names = _names(model, part)
    return {names[parameter]: dict(state) for parameter, state in optimizer.state.items()}


def load_optimizer(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    state: Mapping[str, Mapping[str, Any]],
    part: Part = whole_parameter,
) -> None:
    """Load ``state`` into ``optimizer``, which may have only some of the parameters.

    It takes the tensors that have the right type and device.
    """
    names = _names(model, part)
    layout = optimizer.state_dict()
    parameter_names = [names[p] for group in optimizer.param_groups for p in group["params"]]
    layout["state"] = {
        number: dict(state[name]) for number, name in enumerate(parameter_names) if name in state
    }
    optimizer.load_state_dict(layout)
    for parameter, kept in optimizer.state.items():
        for name, value in kept.items():
            # Another framework or device may have written it with other strides than the
            # parameter's, which torch's fused kernels refuse.
            is_like = isinstance(value, Tensor) and value.shape == parameter.shape
            if is_like and value.stride() != parameter.stride():
                kept[name] = torch.empty_like(parameter, dtype=value.dtype).copy_(value)


def first_names(model: nn.Module) -> dict[str, str]:
    """Return the first name of each tied weight, which has several names, by all of them.

    Optimizer state has the first name.
    """
    names: dict[Tensor, list[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        names.setdefault(parameter, []).append(name)
    return {name: same[0] for same in names.values() if len(same) > 1 for name in same}


def local(tensor: Tensor) -> Tensor:
    """Return this rank's part of ``tensor``, in the same memory."""
    part: Tensor = tensor.to_local() if hasattr(tensor, "to_local") else tensor
    return part.detach()


def _names(model: nn.Module, part: Part) -> dict[Tensor, str]:
    return {part(parameter): name for name, parameter in model.named_parameters()}
