"""Access to NVML, the library that answers for NVIDIA's devices."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from vflops.machine.probe import AbsentError

NO_ACCELERATOR = "no NVIDIA accelerator on this machine"

_HINT = "pip install 'vflops[nvidia]'"
_DRIVER_FILES = ("dev/nvidiactl", "proc/driver/nvidia", "dev/dxg")
"""Present where a driver is loaded; the last one is that of Windows' subsystem for Linux."""


def driver_present(root: Path = Path("/")) -> bool:
    """Whether NVIDIA's driver is loaded; without it there is nothing to install that helps."""
    return any((root / file).exists() for file in _DRIVER_FILES)


def open_nvml() -> Any:
    """Return the module ``pynvml`` with NVML initialised, or raise ``AbsentError``.

    NVML counts its users, so a process that keeps it open need not close it.
    """
    try:
        nvml = importlib.import_module("pynvml")
    except ImportError as error:
        raise AbsentError(_unless_absent(f"pynvml is not installed: {_HINT}")) from error
    try:
        nvml.nvmlInit()
    except Exception as error:  # an NVMLError, or anything that a broken driver raises
        raise AbsentError(_unless_absent(f"no NVIDIA driver answers ({error})")) from error
    return nvml


@contextmanager
def nvml_session() -> Iterator[Any]:
    """Open NVML for the length of a block, or raise ``AbsentError``."""
    nvml = open_nvml()
    try:
        yield nvml
    finally:
        with suppress(nvml.NVMLError):  # a device may have been lost in the meantime
            nvml.nvmlShutdown()


def device_handle(nvml: Any, device: int | str) -> Any:
    """Return NVML's handle of a device, given its index or its UUID with or without a prefix."""
    if isinstance(device, int):
        return nvml.nvmlDeviceGetHandleByIndex(device)
    if device.startswith(("GPU-", "MIG-")):
        return nvml.nvmlDeviceGetHandleByUUID(device)
    try:  # torch leaves the prefix out
        return nvml.nvmlDeviceGetHandleByUUID(f"GPU-{device}")
    except nvml.NVMLError:
        return nvml.nvmlDeviceGetHandleByUUID(f"MIG-{device}")


def decode(words: str | bytes) -> str:
    """Return a name that NVML gives as text; before version 11.5 pynvml gives bytes."""
    return words.decode() if isinstance(words, bytes) else words


def _unless_absent(reason: str) -> str:
    return reason if driver_present() else NO_ACCELERATOR
