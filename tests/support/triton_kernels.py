"""Marks for tests of Triton kernels, which run on a GPU, or on the CPU in Triton's interpreter.

Triton chooses between compiler and interpreter once, when Triton and the kernels are imported.
``conftest.py`` imports this module, so the choice is made before any test imports Triton, as
torch's compiler and its counter of operations do. Processes that tests start do not inherit it:
they run as a user's do.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from inspect import getmembers
from pkgutil import iter_modules
from typing import Any

import pytest
import torch

import vflops.models.kernels

_VARIABLE = "TRITON_INTERPRET"


def _release(package: str) -> tuple[int, int]:
    major, minor = version(package).split(".")[:2]
    return int(major), int(minor)


def _unavailable_reason() -> str | None:
    """Return why no kernel can run here, or None."""
    if find_spec("triton") is None:
        return "Triton is not installed"
    if INTERPRETED and _release("triton") < (3, 7) and _release("numpy") >= (2, 4):
        return "the interpreter of Triton 3.6 does not run with numpy 2.4 and later"
    return None


def _import_interpreted() -> None:
    """Import Triton and all kernels with the interpreter, in this process only."""
    if "triton" in sys.modules:
        raise RuntimeError(
            "Triton was imported before the tests of its kernels were collected, so that it uses "
            "its compiler, which needs a GPU: import torch's compiler inside a function"
        )
    os.environ[_VARIABLE] = "1"
    from triton import knobs  # type: ignore[import-not-found,import-untyped,unused-ignore]

    knobs.runtime.interpret = True
    del os.environ[_VARIABLE]
    _speed_up()
    kernels = [
        f"vflops.models.kernels.{m.name}" for m in iter_modules(vflops.models.kernels.__path__)
    ]
    for name in (*kernels, "vflops.data.images.crop_kernel"):
        import_module(name)


def _speed_up() -> None:
    """Spare the interpreter work without effect, which takes more than half of its time."""
    from triton.language.core import is_builtin
    from triton.runtime import interpreter

    # It computes whether every integer operation overflows, and drops the answer unless debugging.
    builder = interpreter.interpreter_builder
    builder.options = replace(builder.options, sanitize_overflow=builder.options.debug)
    # It makes a table of all types to look up one.
    numpy_type, numpy_types = interpreter._get_np_dtype, dict[str, Any]()

    def look_up(kind: Any) -> Any:
        name = kind.scalar.name
        if name not in numpy_types:
            numpy_types[name] = numpy_type(kind)
        return numpy_types[name]

    # It searches Triton's language for what to replace in every call of a function.
    replaced: dict[object, list[str]] = {}

    def replace_builtins(package: Any, *rest: Any) -> None:
        if package not in replaced:
            replaced[package] = [name for name, item in getmembers(package) if is_builtin(item)]
        for name in replaced[package]:
            if is_builtin(item := getattr(package, name)):
                interpreter._patch_attr(package, name, item, *rest)

    interpreter._get_np_dtype, interpreter._patch_builtin = look_up, replace_builtins


GPU = torch.cuda.is_available() and os.environ.get(_VARIABLE) != "1"
INTERPRETED = not GPU
DEVICE = "cuda" if GPU else "cpu"
_REASON = _unavailable_reason()
if INTERPRETED and _REASON is None:
    _import_interpreted()


def kernel_test(test: Callable[..., None]) -> Callable[..., None]:
    """Mark a test of kernels that are small enough for the interpreter."""
    marked: Callable[..., None] = pytest.mark.skipif(_REASON is not None, reason=_REASON or "")(
        test
    )
    if GPU:
        marked = pytest.mark.gpu(marked)
    return marked


def gpu_kernel_test(test: Callable[..., None]) -> Callable[..., None]:
    """Mark a test of kernels that needs a GPU for its size or for a library."""
    lacking = INTERPRETED or _REASON is not None
    skip = pytest.mark.skipif(lacking, reason=_REASON or "needs an NVIDIA GPU")
    marked: Callable[..., None] = pytest.mark.gpu(skip(test))
    return marked
