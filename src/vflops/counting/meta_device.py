"""Builds models on the meta device, whose tensors have a shape and a type but no values."""

from __future__ import annotations

import linecache
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributions import Distribution
from torch.nn.parameter import UninitializedBuffer, UninitializedParameter, is_lazy
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

from vflops.counting.meta_shapes import INITIALISATIONS, SHORTCUTS
from vflops.errors import UsageError

_SMALL = 4096
"""Elements up to which a tensor that a constructor makes may have values."""


def on_meta(build: Callable[[], nn.Module], name: str) -> nn.Module:
    """Return the model on the meta device, in training mode, or raise ``UsageError``."""
    try:
        model = _built(build)
    except (Exception, SystemExit) as error:
        needs_arguments = isinstance(error, TypeError) and "missing" in str(error)
        fault = first_line(error) + user_line(error)
        raise UsageError(
            f"model {name} cannot be built on the meta device: {fault}",
            hint="it needs arguments: name a function without arguments that returns the model"
            if needs_arguments
            else "build it without reading weights or values of more than "
            f"{_SMALL} elements; give random or no initial weights",
        ) from error
    if not isinstance(model, nn.Module):
        raise UsageError(
            f"model {name} returned {type(model).__name__}, expected a torch.nn.Module",
            hint="name a class of the model or a function that returns an instance",
        )
    return _moved_to_meta(_uncompiled(model)).train()


def _built(build: Callable[[], nn.Module]) -> nn.Module:
    if isinstance(build, nn.Module):
        return build
    try:
        with _Building(), torch.device("meta"):
            return build()
    except Exception as error:
        if not reads_values(error):
            raise
    with torch.random.fork_rng(devices=[]), _BuildingWithValues():
        return build()


def reads_values(error: BaseException) -> bool:
    """Whether ``error`` says that the code reads the value of a tensor on the meta device."""
    text = str(error).lower()
    return "meta tensor" in text or "aten::_local_scalar_dense" in text


def _uncompiled(model: nn.Module) -> nn.Module:
    """Return ``model`` with the original modules in place of those that torch.compile returned."""
    original = getattr(model, "_orig_mod", None)
    if isinstance(original, nn.Module):
        return _uncompiled(original)
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if isinstance(getattr(child, "_orig_mod", None), nn.Module):
                setattr(module, name, _uncompiled(child))
    return model


def _moved_to_meta(model: nn.Module) -> nn.Module:
    """Return ``model`` on the meta device; parameters without a shape keep waiting for one."""
    _require_no_script(model)
    lazy = [
        (tensors, name, lazy_on_meta(tensor))
        for module in model.modules()
        for tensors in (module._parameters, module._buffers)
        for name, tensor in tensors.items()
        if tensor is not None and is_lazy(tensor)
    ]
    model = model.to("meta")
    for tensors, name, tensor in lazy:
        tensors[name] = tensor
    return model


def _require_no_script(model: nn.Module) -> None:
    """Refuse an instance with a module of torch.jit whose parameters have values."""
    for name, module in model.named_modules():
        is_script = isinstance(module, torch.jit.ScriptModule)
        if is_script and any(not parameter.is_meta for parameter in module.parameters()):
            raise UsageError(
                f"module {name or '(model)'} was made by torch.jit.script, which cannot be moved "
                "to the meta device",
                hint="give the module before torch.jit.script, or a function that builds the model",
            )


def lazy_on_meta(tensor: Any) -> Any:
    """Return a parameter or buffer without a shape, like ``tensor``, on the meta device."""
    dtype = tensor.data.dtype
    kind: Any = (
        UninitializedParameter
        if isinstance(tensor, UninitializedParameter)
        else UninitializedBuffer
    )
    return kind(requires_grad=tensor.requires_grad, device="meta", dtype=dtype)


@contextmanager
def without_value_checks() -> Iterator[None]:
    """Let probability distributions accept parameters whose values do not exist."""
    before = Distribution._validate_args
    Distribution.set_default_validate_args(False)
    try:
        yield
    finally:
        Distribution.set_default_validate_args(before)


@contextmanager
def with_autocast_on_meta() -> Iterator[None]:
    """Let ``torch.autocast(x.device.type)`` accept the meta device, where it changes no counts."""
    create = torch.autocast.__init__

    def create_for_cpu(self: Any, device_type: str, *args: Any, **kwargs: Any) -> None:
        create(self, "cpu" if device_type == "meta" else device_type, *args, **kwargs)

    torch.autocast.__init__ = create_for_cpu  # type: ignore[method-assign]
    try:
        yield
    finally:
        torch.autocast.__init__ = create  # type: ignore[method-assign]


@contextmanager
def without_compiler() -> Iterator[None]:
    """Run functions that torch.compile returned as they were written."""
    if "torch._dynamo" not in sys.modules:  # nothing is compiled, and the import takes seconds
        yield
        return
    with torch.compiler.set_stance("force_eager"):
        yield


class MetaMode(TorchDispatchMode):
    """A dispatch mode that torch.compile ignores, so that entering it does not import the
    compiler."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False


class _Building(MetaMode):
    """A mode that skips initialisations on the meta device, which have no effect."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        fills = str(func) in INITIALISATIONS and args[0].is_meta
        return args[0] if fills else func(*args, **(kwargs or {}))


class _BuildingWithValues(MetaMode):
    """A mode in which large new tensors are on the meta device, and small ones have values.

    Constructors that read values, such as drop-path rates from ``torch.linspace``, work in it.
    """

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        tensors = [tensor for tensor in tree_leaves((args, kwargs)) if isinstance(tensor, Tensor)]
        if not tensors and "device" in _argument_names(func):
            on_meta = func(*args, **{**kwargs, "device": torch.device("meta")})
            is_small = isinstance(on_meta, Tensor) and on_meta.numel() <= _SMALL
            return func(*args, **kwargs) if is_small else on_meta
        if any(tensor.is_meta for tensor in tensors):
            if str(func) in INITIALISATIONS and args[0].is_meta:
                return args[0]
            args, kwargs = tree_map_only(Tensor, lambda tensor: tensor.to("meta"), (args, kwargs))
        return func(*args, **kwargs)


def _argument_names(func: Any) -> list[str]:
    schema = getattr(func, "_schema", None)
    return [argument.name for argument in schema.arguments] if schema else []


class ShapesOnly(MetaMode):
    """A mode in which some operators on the meta device infer their shapes faster."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        shortcut = None if kwargs else SHORTCUTS.get(str(func))
        return shortcut(*args) if shortcut else func(*args, **(kwargs or {}))


def first_line(error: BaseException) -> str:
    """Return the type of ``error`` and the first line of its message."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else 'no message'}"


def user_line(error: BaseException) -> str:
    """Return the file and line of the user's code that led to ``error``, with its source."""
    libraries = (str(Path(torch.__file__).parent), str(Path(__file__).parent))
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if not frame.filename.startswith(libraries) and frame.lineno is not None:
            line = linecache.getline(frame.filename, frame.lineno).strip()
            return f" at {frame.filename}:{frame.lineno}" + (f": {line}" if line else "")
    return ""
