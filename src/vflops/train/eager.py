"""Torch optimizers that do not import torch's compiler."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch.optim import Optimizer

OptimizerType = TypeVar("OptimizerType", bound=Optimizer)

_KEPT_FROM_COMPILER = ("add_param_group", "zero_grad", "state_dict", "load_state_dict")


def eager(kind: type[OptimizerType]) -> type[OptimizerType]:
    """Return ``kind`` without the decorators that import torch's compiler.

    The import costs 800 modules and 1.5 s in every training process, most of which compile nothing.
    """
    plain = {name: undecorated(getattr(kind, name)) for name in _KEPT_FROM_COMPILER}
    plain["step"] = torch.no_grad()(undecorated(kind.step))
    made: type[OptimizerType] = type(kind.__name__, (kind,), plain)
    return made


def undecorated(method: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function inside torch's decorators."""
    function: Callable[..., Any] = inspect.unwrap(method)
    return function
