"""Builds models on the meta device, whose tensors have a shape and a type but no values."""

from __future__ import annotations

import linecache
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from vflops.counting.meta_shapes import INITIALISATIONS, SHORTCUTS
from vflops.errors import UsageError


def on_meta(build: Callable[[], nn.Module], name: str) -> nn.Module:
    """Return the model on the meta device, in training mode, or raise ``UsageError``."""
    try:
        with _Building(), torch.device("meta"):
            model = build if isinstance(build, nn.Module) else build()
    except (Exception, SystemExit) as error:
        needs_arguments = isinstance(error, TypeError) and "missing" in str(error)
        fault = first_line(error) + user_line(error)
        raise UsageError(
            f"model {name} cannot be built on the meta device: {fault}",
            hint="it needs arguments: name a function without arguments that returns the model"
            if needs_arguments
            else "build it without reading weights or values; give random or no initial weights",
        ) from error
    if not isinstance(model, nn.Module):
        raise UsageError(
            f"model {name} returned {type(model).__name__}, expected a torch.nn.Module",
            hint="name a class of the model or a function that returns an instance",
        )
    return model.to("meta").train()


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
