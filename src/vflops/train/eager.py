"""Optimizers of torch's that do not load its compiler."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch.optim import Optimizer

Kind = TypeVar("Kind", bound=Optimizer)

_KEPT_FROM_COMPILER = ("add_param_group", "zero_grad", "state_dict", "load_state_dict")


def eager(kind: type[Kind]) -> type[Kind]:
    """``kind`` as it is, but no method imports torch's compiler only to be kept from it.

    That is 800 modules and 1.5 s in every process that trains, and most have nothing to compile.
    """
    plain = {name: undecorated(getattr(kind, name)) for name in _KEPT_FROM_COMPILER}
    plain["step"] = torch.no_grad()(undecorated(kind.step))
    made: type[Kind] = type(kind.__name__, (kind,), plain)
    return made


def undecorated(method: Callable[..., Any]) -> Callable[..., Any]:
    """What is inside of torch's decorators."""
    found: Callable[..., Any] = inspect.unwrap(method)
    return found
