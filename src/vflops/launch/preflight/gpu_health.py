"""The health of a node's NVIDIA GPUs: memory errors, throttled clocks, other processes."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from typing import Any, TypeVar

from vflops.launch.preflight.preflight_findings import Gpu
from vflops.machine.system.nvidia import nvidia
from vflops.machine.system.probe import AbsentError

THROTTLE_REASONS = {
    0x04: "power cap",
    0x08: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
}
"""NVML's reasons for a low clock, without idleness and clocks that a user set."""

_T = TypeVar("_T")


def gpus() -> tuple[tuple[Gpu, ...], str | None]:
    """The GPUs that this process may use, and why there are none."""
    with nvidia() as vendor:
        try:
            count = vendor.count()
        except AbsentError as error:
            return (), str(error)
        nvml = importlib.import_module("pynvml")  # initialised as long as the block lasts
        found = tuple(_gpu(nvml, handle) for handle in _handles(nvml, count))
    return found, None if found else "the job has none of the node's GPUs"


def _handles(nvml: Any, count: int) -> list[Any]:
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is None:
        return [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(count)]
    words = [word.strip() for word in named.split(",")]
    return [
        nvml.nvmlDeviceGetHandleByIndex(int(word))
        if word.isdigit()
        else nvml.nvmlDeviceGetHandleByUUID(word)
        for word in words
        if word.isdigit() or word.startswith(("GPU-", "MIG-"))
    ]


def _gpu(nvml: Any, gpu: Any) -> Gpu:
    def told(read: Callable[[], _T], otherwise: _T) -> _T:
        try:
            return read()
        except nvml.NVMLError:  # not every model has every figure
            return otherwise

    def errors(kind: int) -> int | None:
        return told(lambda: int(nvml.nvmlDeviceGetTotalEccErrors(gpu, kind, 0)), None)

    name = nvml.nvmlDeviceGetName(gpu)
    mask = told(lambda: int(nvml.nvmlDeviceGetCurrentClocksThrottleReasons(gpu)), 0)
    none: tuple[Any, ...] = ()
    running = told(lambda: tuple(nvml.nvmlDeviceGetComputeRunningProcesses(gpu)), none)
    rows = told(lambda: tuple(nvml.nvmlDeviceGetRemappedRows(gpu)), (0, 0, 0, 0))
    return Gpu(
        name=name.decode() if isinstance(name, bytes) else name,
        uncorrected=errors(nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED),
        corrected=errors(nvml.NVML_MEMORY_ERROR_TYPE_CORRECTED),
        remapping="failed" if rows[3] else "waits for a reset" if rows[2] else None,
        throttled=tuple(words for bit, words in THROTTLE_REASONS.items() if mask & bit),
        processes=tuple(int(process.pid) for process in running),
    )
