"""Fake telemetry and machines: trees of /proc and /sys, an NVML with given answers."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from vflops.record.formats.telemetry import Absent, Header, Kind, Part, Series, Telemetry

UTC_S = 1_800_000_000.0
"""The Unix time at which the monotonic clock was 0."""


def tree(root: Path, files: Mapping[str, str]) -> Path:
    """Write these files under ``root`` and return it."""
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return root


def series(
    id: str, kind: Kind = "gauge", part: Part = "accelerator", wraps_at: float | None = None
) -> Series:
    """Return a series of power for a gauge, and of energy for a counter."""
    unit = "W" if kind == "gauge" else "J"
    return Series(
        id=id, title=id, unit=unit, source=f"test {id}", kind=kind, part=part, wraps_at=wraps_at
    )


def telemetry(
    columns: Mapping[Series, Sequence[float | None]],
    times_s: Sequence[float],
    interval_s: float = 1.0,
    absent: Sequence[Absent] = (),
) -> Telemetry:
    """Return the telemetry of a file with these columns."""
    header = Header(interval_s=interval_s, series=tuple(columns), absent=tuple(absent))
    rows = zip(*columns.values(), strict=True)
    table = array("d", [math.nan if value is None else value for row in rows for value in row])
    return Telemetry(header, times_s, [UTC_S + time_s for time_s in times_s], table)


PART = 1000
"""The handle of a part of a GPU (MIG) is that of the GPU and this."""


class FakeNvmlError(Exception):
    """The base of NVML's errors."""


class FakeNvml:
    """A pynvml with H200s: the second reports no energy, and there is no NVLink."""

    NVMLError = FakeNvmlError
    NVML_SUCCESS = 0
    NVML_CLOCK_SM = 1
    NVML_TEMPERATURE_GPU = 0
    NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX = 139

    def __init__(self, uuids: Iterable[str] = ("aaaa", "bbbb")) -> None:
        self.uuids = [f"GPU-{uuid}" for uuid in uuids]
        self.energy_mj = 5_000_000
        self.is_lost = False

    def nvmlInit(self) -> None:  # noqa: N802
        pass

    def nvmlShutdown(self) -> None:  # noqa: N802
        pass

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return len(self.uuids)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:  # noqa: N802
        if index >= len(self.uuids):
            raise FakeNvmlError("Invalid Argument")
        return index

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> int:  # noqa: N802
        """A part of a GPU has the GPU's name and a number: ``MIG-bbbb-1``."""
        if uuid.startswith("MIG-"):
            return PART + self.nvmlDeviceGetHandleByUUID(f"GPU-{uuid.split('-')[1]}")
        if uuid not in self.uuids:
            raise FakeNvmlError("Not Found")
        return self.uuids.index(uuid)

    def nvmlDeviceIsMigDeviceHandle(self, gpu: int) -> bool:  # noqa: N802
        return gpu >= PART

    def nvmlDeviceGetDeviceHandleFromMigDeviceHandle(self, part: int) -> int:  # noqa: N802
        return part - PART

    def nvmlDeviceGetIndex(self, gpu: int) -> int:  # noqa: N802
        return gpu

    def nvmlDeviceGetTotalEnergyConsumption(self, gpu: int) -> int:  # noqa: N802
        if gpu == 1:
            raise FakeNvmlError("Not Supported")
        self.energy_mj += 500_000
        return self.energy_mj

    def nvmlDeviceGetPowerUsage(self, gpu: int) -> int:  # noqa: N802
        if self.is_lost:
            raise FakeNvmlError("GPU is lost")
        if gpu >= PART:
            raise FakeNvmlError("Not Supported")
        return 79_000 + gpu

    def nvmlDeviceGetFieldValues(self, gpu: int, fields: list[Any]) -> list[Any]:  # noqa: N802
        assert fields == [(139, 0xFFFFFFFF)]
        if gpu == 1:
            return [SimpleNamespace(nvmlReturn=3, value=SimpleNamespace(ullVal=0))]
        return [SimpleNamespace(nvmlReturn=0, value=SimpleNamespace(ullVal=7))]

    def __getattr__(self, name: str) -> Any:
        answers = {
            "nvmlDeviceGetUtilizationRates": SimpleNamespace(gpu=97, memory=40),
            "nvmlDeviceGetMemoryInfo": SimpleNamespace(used=5 << 30, total=141 << 30),
            "nvmlDeviceGetClockInfo": 1980,
            "nvmlDeviceGetTemperature": 46,
        }
        if name not in answers:
            raise AttributeError(name)
        return lambda *device: answers[name]
