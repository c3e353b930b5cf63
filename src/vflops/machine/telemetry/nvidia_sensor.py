"""NVIDIA's accelerators, through NVML: what each does, draws and moves."""

from __future__ import annotations

import hashlib
import importlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from vflops.machine.system.nvidia import NO_ACCELERATOR, is_here
from vflops.machine.system.probe import AbsentError, reason_of
from vflops.machine.telemetry.sensor import Channel, Channels
from vflops.record.formats.telemetry import Absent, Kind, Series

_CURE = "pip install 'vflops[nvidia]'"
_ALL_LINKS = 0xFFFFFFFF


@dataclass(frozen=True)
class _Figure:
    """One quantity of a device: how it is called in a record, and how NVML tells it."""

    name: str
    title: str
    unit: str
    kind: Kind
    asks: str
    read: Callable[[Any, Any], float]


def nvidia_sensor(accelerators: Sequence[str | int] | None = None) -> Channels:
    """The series of these devices, by NVML's index or by UUID; None is all that the run may use.

    Series are numbered in the order given. Without pynvml, a driver or a device: all absent.
    """
    try:
        nvml = _nvml()
        devices = _visible(nvml) if accelerators is None else accelerators
        if not devices:
            raise AbsentError("the run uses none")
    except Exception as error:
        reason = reason_of(error, "NVML")
        return Channels([], [Absent(what="NVIDIA accelerators", reason=reason)])
    channels: list[Channel] = []
    absent: list[Absent] = []
    for number, device in enumerate(devices):
        try:
            gpu = _handle(nvml, device)
        except Exception as error:
            absent.append(Absent(what=f"gpu{number}", reason=f"NVML answers: {error}"))
        else:
            same = _device(nvml, gpu)
            channels += [_channel(nvml, number, gpu, same, figure) for figure in _FIGURES]
    return Channels(channels, absent)


def _nvml() -> Any:
    """NVML, initialised; it stays so until the process ends, since it counts its users."""
    try:
        nvml = importlib.import_module("pynvml")
    except ImportError as error:
        reason = f"pynvml is not installed: {_CURE}" if is_here() else NO_ACCELERATOR
        raise AbsentError(reason) from error
    try:
        nvml.nvmlInit()
    except Exception as error:  # pynvml's own errors, and whatever a broken driver brings
        reason = f"no NVIDIA driver answers ({error})" if is_here() else NO_ACCELERATOR
        raise AbsentError(reason) from error
    return nvml


def _visible(nvml: Any) -> list[str | int]:
    """What CUDA_VISIBLE_DEVICES leaves to the run: a device of somebody else is not our power."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is None:
        return list(range(nvml.nvmlDeviceGetCount()))
    words = [word.strip() for word in named.split(",") if word.strip() not in ("", "-1")]
    return [int(word) if word.isdigit() else word for word in words]


def _handle(nvml: Any, device: str | int) -> Any:
    if isinstance(device, int):
        return nvml.nvmlDeviceGetHandleByIndex(device)
    if device.startswith(("GPU-", "MIG-")):
        return nvml.nvmlDeviceGetHandleByUUID(device)
    return nvml.nvmlDeviceGetHandleByUUID(f"GPU-{device}")  # as torch writes it


def _device(nvml: Any, gpu: Any) -> str | None:
    """What tells the device from others, the same for every process; of its UUID only a hash."""
    try:
        uuid = str(nvml.nvmlDeviceGetUUID(gpu))
    except Exception:  # an old pynvml, or a device that is lost
        return None
    return hashlib.sha256(uuid.encode()).hexdigest()[:16]


def _channel(nvml: Any, number: int, gpu: Any, device: str | None, figure: _Figure) -> Channel:
    series = Series(
        id=f"gpu{number}.{figure.name}",
        title=f"accelerator {number}, {figure.title}",
        unit=figure.unit,
        source=f"NVML {figure.asks}",
        kind=figure.kind,
        part="accelerator",
        device=device,
    )

    def read() -> float:
        try:
            return float(figure.read(nvml, gpu))
        except nvml.NVMLError as error:
            raise AbsentError(f"NVML answers: {error}") from error

    return Channel(series, read)


def _field(nvml: Any, gpu: Any, name: str, scope: int) -> float:
    """One of NVML's field values."""
    field = getattr(nvml, name, None)
    if field is None:
        raise AbsentError(f"this pynvml does not know {name}")
    (answer,) = nvml.nvmlDeviceGetFieldValues(gpu, [(field, scope)])
    if answer.nvmlReturn != nvml.NVML_SUCCESS:
        raise nvml.NVMLError(answer.nvmlReturn)
    return float(answer.value.ullVal)


def _nvlink(word: str, name: str) -> _Figure:
    return _Figure(
        f"nvlink_{word}",
        f"bytes {word} over NVLink",
        "B",
        "counter",
        name,
        lambda nvml, gpu: 1024 * _field(nvml, gpu, name, _ALL_LINKS),
    )


_FIGURES = (
    _Figure(
        *("utilisation", "time with a kernel running", "%", "gauge"),
        "nvmlDeviceGetUtilizationRates",
        lambda nvml, gpu: nvml.nvmlDeviceGetUtilizationRates(gpu).gpu,
    ),
    _Figure(
        *("memory_used", "memory in use", "B", "gauge"),
        "nvmlDeviceGetMemoryInfo",
        lambda nvml, gpu: nvml.nvmlDeviceGetMemoryInfo(gpu).used,
    ),
    _Figure(
        *("power", "power", "W", "gauge"),
        "nvmlDeviceGetPowerUsage",
        lambda nvml, gpu: nvml.nvmlDeviceGetPowerUsage(gpu) / 1e3,
    ),
    _Figure(
        *("energy", "energy since the driver was loaded", "J", "counter"),
        "nvmlDeviceGetTotalEnergyConsumption",
        lambda nvml, gpu: nvml.nvmlDeviceGetTotalEnergyConsumption(gpu) / 1e3,
    ),
    _Figure(
        *("sm_clock", "clock of the multiprocessors", "MHz", "gauge"),
        "nvmlDeviceGetClockInfo",
        lambda nvml, gpu: nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_SM),
    ),
    _Figure(
        *("temperature", "temperature", "°C", "gauge"),
        "nvmlDeviceGetTemperature",
        lambda nvml, gpu: nvml.nvmlDeviceGetTemperature(gpu, nvml.NVML_TEMPERATURE_GPU),
    ),
    # Not PCIe: its counter comes around every 4 GiB, several times a second on a busy bus, and
    # nvmlDeviceGetPcieThroughput takes 20 ms a call.
    _nvlink("received", "NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX"),
    _nvlink("sent", "NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX"),
)
