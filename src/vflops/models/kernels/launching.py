"""Launches of Triton kernels, which can be compiled together before the first launch."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from vflops.machine.system.cpu_share import available_cpus

_only_compile: ContextVar[bool] = ContextVar("only_compile", default=False)


def launch(kernel: Any, grid: tuple[int, ...], *arguments: Any, **options: Any) -> None:
    """Launch ``kernel``; inside ``compile_together``, compile it without launching it."""
    if _only_compile.get():
        kernel.warmup(*arguments, grid=grid, **options)
    else:
        kernel[grid](*arguments, **options)


def compile_together(name: str, step: Callable[[], object]) -> None:
    """Compile the kernels that ``step`` would launch, as many at a time as there are cores.

    The results that they would compute stay uninitialised. ``name`` identifies the kernels of the
    step on this device: if they were compiled before, Triton's cache has them, and this does
    nothing.
    """
    import triton  # type: ignore[import-not-found, import-untyped, unused-ignore]

    mark = _mark(name)
    if mark.exists():
        return
    before = _only_compile.set(True)
    try:
        # Most of the time is spent in ptxas and LLVM, outside of Python's lock.
        with ThreadPoolExecutor(available_cpus()) as pool, triton.AsyncCompileMode(pool):
            step()
    finally:
        _only_compile.reset(before)
    with suppress(OSError):
        mark.touch()


def _mark(name: str) -> Path:
    """Return the file in Triton's cache that shows that the kernels called ``name`` are in it."""
    import triton  # type: ignore[import-not-found, import-untyped, unused-ignore]

    sources = [path.read_bytes() for path in sorted(Path(__file__).parent.glob("*.py"))]
    content = b"".join([f"{triton.__version__} {name}".encode(), *sources])
    return Path(triton.knobs.cache.dir) / f"vflops-{hashlib.sha256(content).hexdigest()[:16]}"
