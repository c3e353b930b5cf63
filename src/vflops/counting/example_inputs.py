"""The operation graph of a module that exists already, on example inputs."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.utils._pytree import tree_map_only

from vflops.counting.capture import Loss, capture_call
from vflops.counting.meta_device import lazy_on_meta
from vflops.counting.output_tensors import tensors_in
from vflops.errors import UsageError, format_value
from vflops.record.formats.graph import Graph


def graph_on_inputs(
    model: nn.Module | Callable[[], nn.Module], inputs: object, loss: Loss | None = None
) -> Graph:
    """Return the graph of one training step; neither argument is changed.

    ``inputs`` are one tensor, a sequence of positional arguments or a mapping of keyword arguments.
    The first dimension of every tensor in them is the batch.
    """
    name = _name(model)
    args, keywords = _arguments(inputs)
    batch = _batch([*args, *keywords.values()])

    def build() -> nn.Module:
        return on_meta if isinstance(model, nn.Module) else _built_on_meta(model)

    on_meta = _meta_copy(model) if isinstance(model, nn.Module) else nn.Identity()
    try:
        return capture_call(
            build,
            *_moved_to_meta(args, keywords),
            name=name,
            batch=batch,
            loss=loss,
            run_backward=True,
        )
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


def _arguments(inputs: object) -> tuple[list[Any], dict[str, Any]]:
    if isinstance(inputs, Mapping):
        return [], {str(name): value for name, value in inputs.items()}
    if isinstance(inputs, Sequence) and not isinstance(inputs, str | bytes):
        return list(inputs), {}
    return [inputs], {}


def _moved_to_meta(args: list[Any], keywords: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """Return the arguments with tensors on the meta device, in any object."""
    arguments: tuple[list[Any], dict[str, Any]]
    arguments = tree_map_only(Tensor, _empty_on_meta, (args, keywords))
    remaining = [tensor for tensor in tensors_in(arguments) if not tensor.is_meta]
    if not remaining:
        return arguments
    try:
        return copy.deepcopy(arguments, {id(t): _empty_on_meta(t) for t in remaining})
    except Exception as error:
        raise UsageError(
            f"the inputs cannot be copied: {type(error).__name__}: {error}",
            hint="give tensors, or containers of them",
        ) from error


def _empty_on_meta(tensor: Tensor) -> Tensor:
    return torch.empty_like(tensor, device="meta", requires_grad=tensor.requires_grad)


def _batch(arguments: Sequence[Any]) -> int:
    shapes = [tuple(tensor.shape) for tensor in tensors_in(arguments)]
    if not shapes:
        raise UsageError(
            f"the inputs contain no tensor: {', '.join(map(format_value, arguments)) or 'none'}",
            hint="give the arguments that forward takes, at least one of them a torch.Tensor",
        )
    sizes = {shape[:1] for shape in shapes}
    if len(sizes) > 1 or not all(size and size[0] for size in sizes):
        listed = ", ".join(map(str, shapes))
        raise UsageError(
            f"the inputs have no common batch size in their first dimension: {listed}",
            hint="put the batch first in every input, for example a shape of (8, 3, 224, 224); "
            "a tensor that all samples share can be an attribute of the model",
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
        if is_lazy(tensor):
            memo[id(tensor)] = lazy_on_meta(tensor)
        elif id(tensor) not in memo:
            on_meta = torch.empty_like(tensor, device="meta", requires_grad=False)
            if isinstance(tensor, nn.Parameter):
                on_meta = nn.Parameter(on_meta, requires_grad=tensor.requires_grad)
                _copy_hooks(tensor, on_meta)
            memo[id(tensor)] = on_meta
    try:
        return copy.deepcopy(model, memo)
    except Exception as error:
        raise UsageError(
            f"model {type(model).__name__} cannot be copied: {type(error).__name__}: {error}",
            hint="remove hooks and attributes that hold files, locks or processes",
        ) from error


def _copy_hooks(parameter: nn.Parameter, copied: nn.Parameter) -> None:
    for hook in (getattr(parameter, "_backward_hooks", None) or {}).values():
        copied.register_hook(hook)
    for hook in (getattr(parameter, "_post_accumulate_grad_hooks", None) or {}).values():
        copied.register_post_accumulate_grad_hook(hook)


def _tensors_of(model: nn.Module) -> Iterator[Tensor]:
    yield from model.parameters()
    yield from model.buffers()
    for module in model.modules():
        yield from (value for value in vars(module).values() if isinstance(value, Tensor))
