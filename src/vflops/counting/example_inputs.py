"""The operation graph of a module that exists already, on example inputs."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from vflops.counting.capture import InputSpec, Loss, capture
from vflops.errors import UsageError, format_value
from vflops.record.formats.graph import Graph


def graph_on_inputs(
    model: nn.Module | Callable[[], nn.Module],
    inputs: Tensor | Sequence[Tensor] | Mapping[str, Tensor],
    loss: Loss | None = None,
) -> Graph:
    """Return the graph of one training step's forward pass; neither argument is changed.

    The first dimension of every input is the batch.
    """
    name = _name(model)
    tensors = _named_tensors(inputs)
    batch = _batch(tensors)
    keywords = list(tensors) if isinstance(inputs, Mapping) else None

    on_meta = _meta_copy(model) if isinstance(model, nn.Module) else None

    def build() -> nn.Module:
        built = _built_on_meta(model) if on_meta is None else on_meta
        return built if keywords is None else _called_by_keywords(built, keywords)

    specs = [
        InputSpec(tuple(tensor.shape[1:]), str(tensor.dtype).removeprefix("torch."))
        for tensor in tensors.values()
    ]
    try:
        return capture(build, specs, name=name, batch=batch, loss=loss)
    except UsageError as error:
        if "--input" not in str(error.hint):
            raise
        hint = "give example inputs as the model's forward takes them, each with the batch first"
        raise UsageError(error.message, hint=hint) from error


def _name(model: object) -> str:
    if isinstance(model, nn.Module):
        return type(model).__name__
    if not callable(model):
        raise UsageError(
            f"the model is {format_value(model)}, expected a torch.nn.Module",
            hint="give a module, or a function without arguments that builds one",
        )
    return str(getattr(model, "__name__", type(model).__name__))


def _named_tensors(inputs: object) -> dict[str, Tensor]:
    if isinstance(inputs, Tensor):
        inputs = [inputs]
    if isinstance(inputs, Mapping):
        named = {str(name): value for name, value in inputs.items()}
    elif isinstance(inputs, Sequence):
        named = {str(number): value for number, value in enumerate(inputs)}
    else:
        named = {"0": inputs}
    for name, value in named.items():
        if not isinstance(value, Tensor):
            raise UsageError(
                f"input {name} is {format_value(value)}, expected a torch.Tensor",
                hint="give the tensors that forward takes; for other arguments, wrap the model in "
                "a module that passes them",
            )
    if not named:
        raise UsageError("no input is given", hint="give the tensors that forward takes")
    return named


def _batch(tensors: Mapping[str, Tensor]) -> int:
    shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    sizes = {shape[:1] for shape in shapes.values()}
    if len(sizes) > 1 or not all(size and size[0] for size in sizes):
        listed = ", ".join(f"{name}: {shape}" for name, shape in shapes.items())
        raise UsageError(
            f"the inputs have no common batch size in their first dimension: {listed}",
            hint="put the batch first in every input, for example a shape of (8, 3, 224, 224)",
        )
    return int(sizes.pop()[0])


def _built_on_meta(build: Callable[[], nn.Module]) -> nn.Module:
    built = build()
    if not isinstance(built, nn.Module):
        raise TypeError(f"it returned {type(built).__name__}, expected a torch.nn.Module")
    return _meta_copy(built)  # it may be a module that is still used


def _meta_copy(model: nn.Module) -> nn.Module:
    """Return a copy of ``model`` whose tensors are on the meta device; no values are copied."""
    memo: dict[int, Any] = {}
    for tensor in _tensors_of(model):
        if id(tensor) not in memo:
            on_meta = torch.empty_like(tensor, device="meta", requires_grad=False)
            is_parameter = isinstance(tensor, nn.Parameter)
            memo[id(tensor)] = (
                nn.Parameter(on_meta, requires_grad=tensor.requires_grad)
                if is_parameter
                else on_meta
            )
    try:
        return copy.deepcopy(model, memo)
    except Exception as error:
        raise UsageError(
            f"model {type(model).__name__} cannot be copied: {type(error).__name__}: {error}",
            hint="remove hooks and attributes that hold files, locks or processes",
        ) from error


def _tensors_of(model: nn.Module) -> Iterator[Tensor]:
    yield from model.parameters()
    yield from model.buffers()
    for module in model.modules():
        yield from (value for value in vars(module).values() if isinstance(value, Tensor))


def _called_by_keywords(model: nn.Module, names: Sequence[str]) -> nn.Module:
    """Return ``model``, changed to pass its inputs to ``forward`` by ``names``."""
    forward = model.forward

    def by_keywords(*tensors: Tensor) -> Any:
        return forward(**dict(zip(names, tensors, strict=True)))

    model.forward = by_keywords
    return model
