"""A fake machine: trees of /proc and /sys, a torch and an NVML with given answers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from vflops.record.formats.system import Fact


def tree(root: Path, files: Mapping[str, str]) -> Path:
    """Write these files under ``root`` and return it."""
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return root


def script(folder: Path, name: str, lines: str) -> Path:
    """Write a command ``name`` to ``folder`` that runs these lines."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{lines}\n")
    path.chmod(0o755)
    return path


def named(facts: Iterable[Fact], name: str) -> Fact:
    """Return the only fact called ``name``."""
    (match,) = [fact for fact in facts if fact.name == name]
    return match


def value(facts: Iterable[Fact], name: str) -> Any:
    """Return the value of the only fact called ``name``."""
    return named(facts, name).value


class FakeNvmlError(Exception):
    """The base of NVML's errors."""


class FakeNotSupportedError(FakeNvmlError):
    """The error of a device that does not have a feature."""


class FakeNvml:
    """A pynvml with H200s: the second without ECC, and with half of its NVLinks."""

    NVMLError = FakeNvmlError
    NVMLError_NotSupported = FakeNotSupportedError
    NVMLError_InvalidArgument = type("InvalidArgument", (FakeNvmlError,), {})
    NVML_NVLINK_MAX_LINKS = 36
    NVML_FEATURE_ENABLED = 1
    NVML_CLOCK_SM = 1
    NVML_CLOCK_MEM = 2

    def __init__(self, uuids: Iterable[str] = ("aaaa", "bbbb")) -> None:
        self.uuids = [f"GPU-{uuid}" for uuid in uuids]
        self.open = 0

    def nvmlInit(self) -> None:  # noqa: N802
        self.open += 1

    def nvmlShutdown(self) -> None:  # noqa: N802
        self.open -= 1

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:  # noqa: N802
        return index

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> int:  # noqa: N802
        if uuid not in self.uuids:
            raise FakeNvmlError("Not Found")
        return self.uuids.index(uuid)

    def nvmlDeviceGetEccMode(self, gpu: int) -> list[int]:  # noqa: N802
        if gpu == 1:
            raise FakeNotSupportedError("Not Supported")
        return [1, 1]

    def nvmlDeviceGetNvLinkState(self, gpu: int, link: int) -> int:  # noqa: N802
        if link >= 18:
            raise self.NVMLError_InvalidArgument("Invalid Argument")
        return 1 if gpu != 1 or link < 9 else 0

    def nvmlDeviceGetMaxClockInfo(self, gpu: int, kind: int) -> int:  # noqa: N802
        return 1980 if kind == self.NVML_CLOCK_SM else 3201

    def nvmlDeviceGetClockInfo(self, gpu: int, kind: int) -> int:  # noqa: N802
        return 345 if kind == self.NVML_CLOCK_SM else 3201

    def __getattr__(self, name: str) -> Any:
        answers = {
            "nvmlSystemGetDriverVersion": b"570.86.15",
            "nvmlSystemGetCudaDriverVersion": 12080,
            "nvmlDeviceGetCount": len(self.uuids),
            "nvmlDeviceGetName": "NVIDIA H200",
            "nvmlDeviceGetMemoryInfo": SimpleNamespace(total=150754820096),
            "nvmlDeviceGetMemoryBusWidth": 6144,
            "nvmlDeviceGetMigMode": [0, 0],
            "nvmlDeviceGetCudaComputeCapability": (9, 0),
            "nvmlDeviceGetEnforcedPowerLimit": 650500,
            "nvmlDeviceGetPowerManagementDefaultLimit": 700000,
            "nvmlDeviceGetMaxPcieLinkGeneration": 5,
            "nvmlDeviceGetCurrPcieLinkGeneration": 1,
            "nvmlDeviceGetMaxPcieLinkWidth": 16,
            "nvmlDeviceGetCurrPcieLinkWidth": 16,
            "nvmlDeviceGetPersistenceMode": 1,
        }
        if name not in answers:
            raise AttributeError(name)
        return lambda *device: answers[name]


def fake_torch(uuids: Iterable[str] = (), *, hip: str | None = None, kind: str = "cuda") -> Any:
    """Return a torch that sees one H200 per UUID."""
    devices = [
        SimpleNamespace(
            name="NVIDIA H200",
            total_memory=149973250048,
            major=9,
            minor=0,
            multi_processor_count=132,
            L2_cache_size=62914560,
            uuid=uuid,
        )
        for uuid in uuids
    ]
    vendor = SimpleNamespace(
        get_device_properties=lambda index: devices[index],
        get_device_capability=lambda: (9, 0),
        nccl=SimpleNamespace(version=lambda: (2, 26, 2)),
    )
    torch = SimpleNamespace(
        accelerator=SimpleNamespace(
            device_count=lambda: len(devices),
            is_available=lambda: bool(devices),
            current_accelerator=lambda: SimpleNamespace(type=kind) if devices else None,
        ),
        version=SimpleNamespace(cuda=None if hip else "12.8", hip=hip),
        distributed=SimpleNamespace(is_nccl_available=lambda: True),
    )
    setattr(torch, kind, vendor)
    return torch
