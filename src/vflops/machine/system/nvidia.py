"""Facts about NVIDIA's devices, through NVML."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from vflops.machine.nvml import decode, device_handle, nvml_session
from vflops.machine.probe import AbsentError, fact
from vflops.machine.system.vendor import FIGURES, NoVendor, Vendor
from vflops.record.formats.system import Fact, Value

_SOURCE = "NVML"

NVIDIA_FIGURES: dict[str, str | None] = {
    **FIGURES,
    "compute capability": None,
    "ecc": None,
    "mig": None,
    "nvlinks active": None,
    "persistence mode": None,
}


@contextmanager
def nvidia(root: Path = Path("/")) -> Iterator[Vendor]:
    """Open the reader for NVIDIA's devices; a null object without pynvml or a driver."""
    with ExitStack() as stack:
        try:
            vendor: Vendor = Nvidia(stack.enter_context(nvml_session(root)))
        except AbsentError as error:
            vendor = NoVendor(_SOURCE, str(error), NVIDIA_FIGURES)
        yield vendor


class Nvidia:
    """Reads facts from an initialised NVML."""

    source = _SOURCE

    def __init__(self, nvml: Any) -> None:
        self._nvml = nvml

    def driver(self) -> str:
        """Return the version of the kernel module."""
        return decode(self._nvml.nvmlSystemGetDriverVersion())

    def cuda(self) -> str:
        """Return the newest CUDA version that the driver supports; NVML reports 12.4 as 12040."""
        version = int(self._nvml.nvmlSystemGetCudaDriverVersion())
        return f"{version // 1000}.{version % 1000 // 10}"

    def count(self) -> int:
        """Return the number of devices of the node, regardless of CUDA_VISIBLE_DEVICES."""
        return int(self._nvml.nvmlDeviceGetCount())

    def device_facts(self, prefix: str, device: Callable[[], int | str]) -> list[Fact]:
        """Return the facts about one device; those that it does not report are absent."""
        return [
            fact(f"{prefix} {name}", _SOURCE, self._reader(name, device), unit=unit)
            for name, unit in NVIDIA_FIGURES.items()
        ]

    def _reader(self, name: str, device: Callable[[], int | str]) -> Callable[[], Value]:
        def read() -> Value:
            try:
                return _READ[name](self._nvml, device_handle(self._nvml, device()))
            except self._nvml.NVMLError as error:
                raise AbsentError(f"NVML answers: {error}") from error

        return read


def _nvlinks(nvml: Any, gpu: Any) -> int:
    active = 0
    for link in range(nvml.NVML_NVLINK_MAX_LINKS):
        try:
            active += nvml.nvmlDeviceGetNvLinkState(gpu, link) == nvml.NVML_FEATURE_ENABLED
        except (nvml.NVMLError_NotSupported, nvml.NVMLError_InvalidArgument):
            break  # this device has no further links
    return active


_READ: dict[str, Callable[[Any, Any], Value]] = {
    "model": lambda nvml, gpu: decode(nvml.nvmlDeviceGetName(gpu)),
    "memory": lambda nvml, gpu: int(nvml.nvmlDeviceGetMemoryInfo(gpu).total),
    "memory bus width": lambda nvml, gpu: int(nvml.nvmlDeviceGetMemoryBusWidth(gpu)),
    "ecc": lambda nvml, gpu: bool(nvml.nvmlDeviceGetEccMode(gpu)[0]),
    "mig": lambda nvml, gpu: bool(nvml.nvmlDeviceGetMigMode(gpu)[0]),
    "compute capability": lambda nvml, gpu: ".".join(
        str(part) for part in nvml.nvmlDeviceGetCudaComputeCapability(gpu)
    ),
    "clock max": lambda nvml, gpu: int(nvml.nvmlDeviceGetMaxClockInfo(gpu, nvml.NVML_CLOCK_SM)),
    "clock now": lambda nvml, gpu: int(nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_SM)),
    "memory clock max": lambda nvml, gpu: int(
        nvml.nvmlDeviceGetMaxClockInfo(gpu, nvml.NVML_CLOCK_MEM)
    ),
    "memory clock now": lambda nvml, gpu: int(
        nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_MEM)
    ),
    "power limit": lambda nvml, gpu: nvml.nvmlDeviceGetEnforcedPowerLimit(gpu) / 1e3,
    "power limit by default": lambda nvml, gpu: (
        nvml.nvmlDeviceGetPowerManagementDefaultLimit(gpu) / 1e3
    ),
    "pcie generation max": lambda nvml, gpu: int(nvml.nvmlDeviceGetMaxPcieLinkGeneration(gpu)),
    "pcie generation now": lambda nvml, gpu: int(nvml.nvmlDeviceGetCurrPcieLinkGeneration(gpu)),
    "pcie lanes max": lambda nvml, gpu: int(nvml.nvmlDeviceGetMaxPcieLinkWidth(gpu)),
    "pcie lanes now": lambda nvml, gpu: int(nvml.nvmlDeviceGetCurrPcieLinkWidth(gpu)),
    "nvlinks active": _nvlinks,
    "persistence mode": lambda nvml, gpu: bool(nvml.nvmlDeviceGetPersistenceMode(gpu)),
}
