"""Utilisation, power, memory and traffic of NVIDIA's accelerators, through NVML."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vflops.machine.nvml import device_handle, open_nvml
from vflops.machine.probe import AbsentError, reason_of
from vflops.machine.telemetry.sensor import Channel, Channels
from vflops.machine.visible_devices import visible_gpus
from vflops.record.formats.telemetry import Absent, Kind, Series

_ALL_LINKS = 0xFFFFFFFF


@dataclass(frozen=True)
class _Figure:
    """One quantity of a device: its name in a record, and how it is read from NVML."""

    name: str
    title: str
    unit: str
    kind: Kind
    nvml_name: str
    read: Callable[[Any, Any], float]


def nvidia_sensor(
    accelerators: Sequence[str | int] | None = None,
    root: Path = Path("/"),
    *,
    used: Sequence[int] | None = None,
) -> Channels:
    """Return a sensor for ``accelerators``, which are indices or UUIDs of NVML.

    If None, it reads the devices that the run may use, or those of them with the indices ``used``
    of CUDA; if there are fewer, ranks share them. Series are numbered in the given order. Without
    pynvml, a driver or a device, all series are absent.
    """
    try:
        nvml = open_nvml(root)  # left open until the process ends
        devices = _visible(nvml, used) if accelerators is None else accelerators
        if not devices:
            raise AbsentError("the run uses none")
    except Exception as error:
        reason = reason_of(error, "NVML")
        return Channels([], [Absent(what="NVIDIA accelerators", reason=reason)])
    channels: list[Channel] = []
    absent: list[Absent] = []
    for number, device in enumerate(devices):
        try:
            gpu = device_handle(nvml, device)
        except Exception as error:
            absent.append(Absent(what=f"gpu{number}", reason=f"NVML answers: {error}"))
        else:
            device_id = _device_id(nvml, gpu)
            channels += [_channel(nvml, number, gpu, device_id, figure) for figure in _FIGURES]
    return Channels(channels, absent)


def _visible(nvml: Any, used: Sequence[int] | None) -> Sequence[int | str]:
    """Return the devices with the indices ``used`` of those that this process may use."""
    if used is not None and not used:
        return ()
    visible = visible_gpus(nvml)
    if used is None or not visible:
        return visible
    return list(dict.fromkeys(visible[index % len(visible)] for index in used))


def _device_id(nvml: Any, gpu: Any) -> str | None:
    """Return a hash of the device's UUID, the same in every process; None if it is not known."""
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
        source=f"NVML {figure.nvml_name}",
        kind=figure.kind,
        part="accelerator",
        device=device,
    )

    is_part = _is_part(nvml, gpu)

    def read() -> float:
        try:
            return float(figure.read(nvml, gpu))
        except nvml.NVMLError as error:
            of = ", of a part of a GPU (MIG)" if is_part else ""
            raise AbsentError(f"NVML answers{of}: {error}") from error

    return Channel(series, read)


def _is_part(nvml: Any, gpu: Any) -> bool:
    """Whether a device is a part of a GPU (MIG), of which NVML measures little but its memory."""
    try:
        return bool(nvml.nvmlDeviceIsMigDeviceHandle(gpu))
    except (AttributeError, nvml.NVMLError):  # an old pynvml, or an old driver
        return False


def _field(nvml: Any, gpu: Any, name: str, scope: int) -> float:
    """Read one of NVML's field values."""
    field = getattr(nvml, name, None)
    if field is None:
        raise AbsentError(f"this pynvml does not know {name}")
    (answer,) = nvml.nvmlDeviceGetFieldValues(gpu, [(field, scope)])
    if answer.nvmlReturn != nvml.NVML_SUCCESS:
        raise nvml.NVMLError(answer.nvmlReturn)
    return float(answer.value.ullVal)


def _nvlink(direction: str, name: str) -> _Figure:
    return _Figure(
        f"nvlink_{direction}",
        f"bytes {direction} over NVLink",
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
    # PCIe traffic is not read: the counter wraps around every 4 GiB, several times a second on a
    # busy bus, and nvmlDeviceGetPcieThroughput takes 20 ms per call.
    _nvlink("received", "NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX"),
    _nvlink("sent", "NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX"),
)
