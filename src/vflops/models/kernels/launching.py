"""Launches of Triton kernels, which can be compiled together before the first launch."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import ContextVar
from functools import partial
from pathlib import Path
from typing import Any

import torch

from vflops.machine.system.cpu_share import available_cpus

_compiled: ContextVar[list[Any] | None] = ContextVar("compiled", default=None)
"""The kernels compiled so far, if they are only to be compiled."""


def launch(kernel: Any, grid: tuple[int, ...], *arguments: Any, **options: Any) -> None:
    """Launch ``kernel``; inside ``compile_together``, compile it without launching it."""
    compiled = _compiled.get()
    if compiled is None:
        kernel[grid](*arguments, **options)
    else:
        compiled.append(kernel.warmup(*arguments, grid=grid, **options))


def compile_together(name: str, step: Callable[[], object], device: torch.device) -> None:
    """Compile the kernels that ``step`` would launch, as many at a time as there are cores.

    Triton also compiles a launcher in C for every kernel, which would take as long as the kernels
    if it were left to their first launches, one after the other. The results that the kernels would
    compute stay uninitialised. ``name`` identifies the kernels of the step on this device: if they
    were compiled before, Triton's cache has them, and this does nothing.
    """
    import triton  # type: ignore[import-not-found, import-untyped, unused-ignore]

    mark = _mark(name)
    if mark.exists():
        return
    kernels: list[Any] = []
    before = _compiled.set(kernels)
    try:
        # Most of the time is spent in ptxas, LLVM and the C compiler, outside of Python's lock.
        with ThreadPoolExecutor(available_cpus()) as pool:
            with triton.AsyncCompileMode(pool):
                step()
            list(pool.map(partial(_load, device=device), {_finished(k) for k in kernels}))
    finally:
        _compiled.reset(before)
    with suppress(OSError):
        mark.touch()


def _finished(kernel: Any) -> Any:
    """Return a compiled kernel; ``kernel`` may be a promise of one."""
    return kernel.result() if hasattr(kernel, "result") else kernel


def _load(kernel: Any, device: torch.device) -> None:
    """Compile the launcher of a kernel, and load both."""
    with torch.cuda.device(device if device.type == "cuda" else -1):
        _ = kernel.run


def _mark(name: str) -> Path:
    """Return the file in Triton's cache that shows that the kernels called ``name`` are in it."""
    import triton  # type: ignore[import-not-found, import-untyped, unused-ignore]

    sources = [path.read_bytes() for path in sorted(Path(__file__).parent.glob("*.py"))]
    content = b"".join([f"{triton.__version__} {name}".encode(), *sources])
    return Path(triton.knobs.cache.dir) / f"vflops-{hashlib.sha256(content).hexdigest()[:16]}"
