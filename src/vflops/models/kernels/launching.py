"""Launches of Triton kernels, which can be compiled together before the first launch."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

_only_compile: ContextVar[bool] = ContextVar("only_compile", default=False)


def launch(kernel: Any, grid: tuple[int, ...], *arguments: Any, **options: Any) -> None:
    """Launch ``kernel``; inside ``compiled_together``, compile it without launching it."""
    if _only_compile.get():
        kernel.warmup(*arguments, grid=grid, **options)
    else:
        kernel[grid](*arguments, **options)


@contextmanager
def compiled_together() -> Iterator[None]:
    """Compile the kernels that a block would launch, as many at a time as there are cores.

    The results that they would compute stay uninitialised.
    """
    import triton  # type: ignore[import-not-found, unused-ignore]

    before = _only_compile.set(True)
    try:
        # Most of the time is spent in ptxas and LLVM, outside of Python's lock.
        with ThreadPoolExecutor(_cores()) as pool, triton.AsyncCompileMode(pool):
            yield
    finally:
        _only_compile.reset(before)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
