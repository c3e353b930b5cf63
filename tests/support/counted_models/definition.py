"""How a model of the counting table is defined: modules and parameters, and a forward function."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

VOCABULARY = 16
"""Integer inputs are below this number."""

Input = Callable[[], Any]
Part = tuple[int, ...] | Callable[[], nn.Module]
Forward = Callable[..., Any]


@dataclass(frozen=True)
class CountedModel:
    """A small model with example inputs."""

    name: str
    build: Callable[[], nn.Module]
    inputs: Callable[[], Any]
    """Returns the inputs, with values: a tuple of tensors, or a dict by name."""


class Applied(nn.Module):
    """A forward function with the modules and parameters that it uses."""

    def __init__(self, function: Forward, parts: dict[str, Part]) -> None:
        super().__init__()
        self.function = function
        for name, part in parts.items():
            if isinstance(part, tuple):
                self.register_parameter(name, nn.Parameter(torch.randn(part)))
            else:
                self.add_module(name, part())

    def forward(self, *inputs: Any, **named_inputs: Any) -> Any:
        return self.function(self, *inputs, **named_inputs)


def applied(name: str, forward: Forward, *inputs: Input, **parts: Part) -> CountedModel:
    """Define a model as ``forward(m, *inputs)``; ``m`` has the parts as attributes.

    A part is the shape of a parameter or a function that builds a module.
    """
    return built(name, lambda: Applied(forward, parts), *inputs)


def built(name: str, build: Callable[[], nn.Module], *inputs: Input) -> CountedModel:
    """Define a model by a function that builds it."""
    return CountedModel(name, build, lambda: tuple(make() for make in inputs))


def real(*shape: int) -> Input:
    """Return a function that makes an input of random floats."""
    return lambda: torch.randn(shape)


def tokens(*shape: int) -> Input:
    """Return a function that makes an input of integers below ``VOCABULARY``."""
    return lambda: torch.randint(VOCABULARY, shape)


def linear(width_in: int, width_out: int, **options: Any) -> Part:
    """Return a part that is a linear layer."""
    return lambda: nn.Linear(width_in, width_out, **options)


def conv(*arguments: Any, **options: Any) -> Part:
    """Return a part that is a 2-D convolution with padding for a kernel of 3."""
    options.setdefault("padding", 1 if len(arguments) > 2 and arguments[2] == 3 else 0)
    return lambda: nn.Conv2d(*arguments, **options)


def heads(x: Tensor, count: int) -> Any:
    """Split the last dimension into heads: (batch, length, width) to (batch, head, length, …)."""
    return x.unflatten(-1, (count, -1)).transpose(1, 2)


def joined(x: Tensor) -> Tensor:
    """Undo ``heads``."""
    return x.transpose(1, 2).flatten(2)
