"""Access to NVML, NVIDIA's library for monitoring its devices."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from vflops.machine.probe import AbsentError

NO_ACCELERATOR = "no NVIDIA accelerator on this machine"

_HINT = "pip install nvidia-ml-py"
_DRIVER_FILES = ("dev/nvidiactl", "proc/driver/nvidia", "dev/dxg")
"""Files that exist if a driver is loaded; the last one is for the Windows Subsystem for Linux."""


def driver_present(root: Path = Path("/")) -> bool:
    """Whether NVIDIA's driver is loaded; without it, installing pynvml does not help."""
    return any((root / file).exists() for file in _DRIVER_FILES)


def open_nvml(root: Path = Path("/")) -> Any:
    """Return the module ``pynvml`` with NVML initialised, or raise ``AbsentError``.

    NVML is reference-counted: a process may keep it open until it exits.
    """
    try:
        nvml = importlib.import_module("pynvml")
    except ImportError as error:
        raise AbsentError(_reason(f"pynvml is not installed: {_HINT}", root)) from error
    try:
        nvml.nvmlInit()
    except Exception as error:  # an NVMLError, or anything that a broken driver raises
        raise AbsentError(_reason(f"no NVIDIA driver answers ({error})", root)) from error
    return nvml


@contextmanager
def nvml_session(root: Path = Path("/")) -> Iterator[Any]:
    """Open NVML for the duration of a block, or raise ``AbsentError``."""
    nvml = open_nvml(root)
    try:
        yield nvml
    finally:
        with suppress(nvml.NVMLError):  # a device may have been lost in the meantime
            nvml.nvmlShutdown()


def device_handle(nvml: Any, device: int | str) -> Any:
    """Return NVML's handle of a device by index, or by UUID with or without prefix."""
    if isinstance(device, int):
        return nvml.nvmlDeviceGetHandleByIndex(device)
    if device.startswith(("GPU-", "MIG-")):
        return nvml.nvmlDeviceGetHandleByUUID(device)
    try:  # torch leaves the prefix out
        return nvml.nvmlDeviceGetHandleByUUID(f"GPU-{device}")
    except nvml.NVMLError:
        return nvml.nvmlDeviceGetHandleByUUID(f"MIG-{device}")


def decode(name: str | bytes) -> str:
    """Return a name from NVML as text; pynvml before version 11.5 returns bytes."""
    return name.decode() if isinstance(name, bytes) else name


def _reason(reason: str, root: Path) -> str:
    """Return ``reason`` if a driver is loaded; otherwise there is no accelerator."""
    return reason if driver_present(root) else NO_ACCELERATOR
