"""The GPUs of the node that a process may use: by the user, by SLURM and by the CUDA driver."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import takewhile
from typing import Any
from uuid import UUID

from vflops.errors import UsageError
from vflops.machine.nvml import device_handle, nvml_session
from vflops.machine.probe import AbsentError

CUDA = "CUDA_VISIBLE_DEVICES"
_DRIVER = "libcuda.so.1"
_NO_DEVICE = 100
"""The driver's answer if it has no device, or if all are hidden."""


def visible_devices(environment: Mapping[str, str] = os.environ) -> list[int]:
    """Return the indices, on the node, of the GPUs that ranks may use; empty if not known.

    They are in the order of PCI addresses. SLURM may have renumbered them for CUDA, so its own
    variables are read first.
    """
    names = ("SLURM_STEP_GPUS", "SLURM_JOB_GPUS", CUDA)
    text = next((environment[name] for name in names if environment.get(name)), "")
    entries = _entries(text)
    if all(isinstance(entry, int) for entry in entries):
        return [entry for entry in entries if isinstance(entry, int)]
    with suppress(AbsentError), nvml_session() as nvml, suppress(nvml.NVMLError):
        return [int(nvml.nvmlDeviceGetIndex(_whole_gpu(nvml, entry))) for entry in entries]
    return []


def cuda_devices(environment: Mapping[str, str] = os.environ) -> list[int | str] | None:
    """Return the indices and UUIDs in CUDA_VISIBLE_DEVICES; None if the variable is not set."""
    text = environment.get(CUDA)
    return None if text is None else _entries(text)


def slot_devices(slots: int, environment: Mapping[str, str] = os.environ) -> list[str]:
    """Return the value of CUDA_VISIBLE_DEVICES for each of a node's slots.

    If the user has set the variable, these are its own entries, so that no slot gets a GPU that the
    user has hidden.
    """
    entries = cuda_devices(environment)
    own = [str(entry) for entry in (range(slots) if entries is None else entries)]
    if len(own) < slots:
        raise UsageError(
            f"{CUDA}={environment[CUDA]} names {len(own)} devices, but torch sees {slots}",
            hint=f"name each device once in {CUDA}, by its index or its UUID",
        )
    return own[:slots]


def cuda_uuids(library: str = _DRIVER) -> list[str]:
    """Return the UUIDs of the GPUs that this process may use, in the order of CUDA.

    They have no prefix, as in torch; a part of a GPU (MIG) has its own. The driver is asked, which
    alone knows the order and what a process may use. Raise AbsentError if it does not answer.
    """
    try:
        driver = ctypes.CDLL(library)
    except OSError as error:
        raise AbsentError(f"the CUDA driver is not installed: {error}") from error
    code = driver.cuInit(0)
    if code == _NO_DEVICE:
        return []
    count, device, uuid = ctypes.c_int(), ctypes.c_int(), (ctypes.c_ubyte * 16)()
    _require(code or driver.cuDeviceGetCount(ctypes.byref(count)))
    read = getattr(driver, "cuDeviceGetUuid_v2", None) or driver.cuDeviceGetUuid
    uuids = []
    for index in range(count.value):
        _require(driver.cuDeviceGet(ctypes.byref(device), index))
        _require(read(ctypes.byref(uuid), device))
        uuids.append(str(UUID(bytes=bytes(uuid))))
    return uuids


def visible_gpus(nvml: Any) -> Sequence[int | str]:
    """Return what names each GPU that this process may use in NVML, in the order of CUDA.

    NVML has another order, and does not know which devices are hidden.
    """
    try:
        return cuda_uuids()
    except AbsentError:  # as on a node whose driver is broken
        devices = cuda_devices()
        return range(nvml.nvmlDeviceGetCount()) if devices is None else devices


def _entries(text: str) -> list[int | str]:
    """Return the entries of CUDA_VISIBLE_DEVICES up to the first one that names no device."""
    stripped = (entry.strip() for entry in text.split(","))
    valid = takewhile(lambda entry: entry.isdigit() or entry.startswith(("GPU-", "MIG-")), stripped)
    return [int(entry) if entry.isdigit() else entry for entry in valid]


def _whole_gpu(nvml: Any, device: int | str) -> Any:
    """Return NVML's handle of a GPU, or of the GPU that a part belongs to."""
    handle = device_handle(nvml, device)
    if isinstance(device, str) and device.startswith("MIG-"):
        return nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(handle)
    return handle


def _require(code: int) -> None:
    if code:
        raise AbsentError(f"the CUDA driver answers with error {code}")
