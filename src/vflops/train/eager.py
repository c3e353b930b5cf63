"""torch optimizers that do not import torch's compiler."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch.optim import Optimizer

OptimizerType = TypeVar("OptimizerType", bound=Optimizer)

_DECORATED_METHODS = ("add_param_group", "zero_grad", "state_dict", "load_state_dict")


def eager(optimizer: type[OptimizerType]) -> type[OptimizerType]:
    """Return a subclass of ``optimizer`` without the decorators that import torch's compiler.

    The import loads 800 modules and takes 1.5 s in every training process, even in the many that
    compile nothing.
    """
    methods = {name: undecorated(getattr(optimizer, name)) for name in _DECORATED_METHODS}
    methods["step"] = torch.no_grad()(undecorated(optimizer.step))
    subclass: type[OptimizerType] = type(optimizer.__name__, (optimizer,), methods)
    return subclass


def undecorated(method: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function inside torch's decorators."""
    function: Callable[..., Any] = inspect.unwrap(method)
    return function
