"""The health of a node's NVIDIA GPUs: memory errors, throttled clocks, other processes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from vflops.launch.node_check.exchange import Gpu
from vflops.machine.nvml import decode, device_handle, nvml_session
from vflops.machine.probe import AbsentError
from vflops.machine.visible_devices import visible_gpus

THROTTLE_REASONS = {
    0x04: "power cap",
    0x08: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
}
"""NVML's reasons for a low clock, except that the GPU is idle or that a user set the clock."""

_T = TypeVar("_T")


def gpus() -> tuple[tuple[Gpu, ...], str | None]:
    """Return the GPUs that this process may use, or why there are none."""
    try:
        with nvml_session() as nvml:
            devices = [device_handle(nvml, device) for device in visible_gpus(nvml)]
            visible = tuple(_gpu(nvml, device) for device in devices)
    except AbsentError as error:
        return (), str(error)
    return visible, None if visible else "the job has none of the node's GPUs"


def _gpu(nvml: Any, gpu: Any) -> Gpu:
    def read_or(read: Callable[[], _T], otherwise: _T) -> _T:
        try:
            return read()
        except nvml.NVMLError:  # not every model of GPU reports every value
            return otherwise

    def errors(kind: int) -> int | None:
        return read_or(lambda: int(nvml.nvmlDeviceGetTotalEccErrors(gpu, kind, 0)), None)

    mask = read_or(lambda: int(nvml.nvmlDeviceGetCurrentClocksThrottleReasons(gpu)), 0)
    none: tuple[Any, ...] = ()
    running = read_or(lambda: tuple(nvml.nvmlDeviceGetComputeRunningProcesses(gpu)), none)
    rows = read_or(lambda: tuple(nvml.nvmlDeviceGetRemappedRows(gpu)), (0, 0, 0, 0))
    return Gpu(
        name=decode(nvml.nvmlDeviceGetName(gpu)),
        uncorrected=errors(nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED),
        corrected=errors(nvml.NVML_MEMORY_ERROR_TYPE_CORRECTED),
        remapping="failed" if rows[3] else "waits for a reset" if rows[2] else None,
        throttled=tuple(words for bit, words in THROTTLE_REASONS.items() if mask & bit),
        processes=tuple(int(process.pid) for process in running),
    )
