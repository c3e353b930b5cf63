"""The GPUs that a process may use, by the variables that limit them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.support.telemetry_fakes import FakeNvml
from vflops.errors import UsageError
from vflops.machine import visible_devices as module
from vflops.machine.nvml import driver_present
from vflops.machine.probe import AbsentError
from vflops.machine.visible_devices import (
    cuda_devices,
    cuda_uuids,
    slot_devices,
    visible_devices,
    visible_gpus,
)


@pytest.mark.parametrize(
    ("environment", "numbers"),
    [
        ({}, []),
        ({"CUDA_VISIBLE_DEVICES": ""}, []),
        ({"CUDA_VISIBLE_DEVICES": "1,3"}, [1, 3]),
        ({"CUDA_VISIBLE_DEVICES": " 2, 3 "}, [2, 3]),
        ({"CUDA_VISIBLE_DEVICES": "GPU-aaaa"}, []),
        ({"CUDA_VISIBLE_DEVICES": "0", "SLURM_JOB_GPUS": "5"}, [5]),
        ({"CUDA_VISIBLE_DEVICES": "0", "SLURM_STEP_GPUS": "6", "SLURM_JOB_GPUS": "5,6"}, [6]),
    ],
)
def test_numbers_of_the_node_come_before_those_of_cuda(
    environment: dict[str, str], numbers: list[int]
) -> None:
    assert visible_devices(environment) == numbers


@pytest.mark.parametrize(
    ("text", "devices"),
    [
        (None, None),
        ("", []),
        ("-1", []),
        ("NoDevFiles", []),
        ("1, 0", [1, 0]),
        ("1,-1,0", [1]),
        ("GPU-aaaa,MIG-bbbb,2", ["GPU-aaaa", "MIG-bbbb", 2]),
    ],
)
def test_words_that_name_no_device_are_left_out(
    text: str | None, devices: list[int | str] | None
) -> None:
    environment = {} if text is None else {"CUDA_VISIBLE_DEVICES": text}
    assert cuda_devices(environment) == devices


@pytest.mark.parametrize(
    ("text", "slots", "devices"),
    [
        (None, 2, ["0", "1"]),
        ("2, 3", 2, ["2", "3"]),
        ("2,3", 1, ["2"]),
        ("GPU-b,MIG-c", 2, ["GPU-b", "MIG-c"]),
    ],
)
def test_slots_get_the_users_own_entries(text: str | None, slots: int, devices: list[str]) -> None:
    environment = {} if text is None else {"CUDA_VISIBLE_DEVICES": text}
    assert slot_devices(slots, environment) == devices


def test_slots_never_get_devices_that_the_user_has_hidden() -> None:
    with pytest.raises(
        UsageError, match="CUDA_VISIBLE_DEVICES=3 names 1 devices, but torch sees 2"
    ):
        slot_devices(2, {"CUDA_VISIBLE_DEVICES": "3"})


def test_uuids_are_found_on_the_node_by_nvml(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml())
    assert visible_devices({"CUDA_VISIBLE_DEVICES": "GPU-bbbb, GPU-aaaa"}) == [1, 0]
    assert visible_devices({"CUDA_VISIBLE_DEVICES": "MIG-bbbb-1"}) == [1]
    assert visible_devices({"CUDA_VISIBLE_DEVICES": "GPU-cccc"}) == []


_DRIVER = """
#include <string.h>
int cuInit(unsigned flags) { return RESULT; }
int cuDeviceGetCount(int *count) { *count = 2; return 0; }
int cuDeviceGet(int *device, int index) { *device = 5 - index; return 0; }
int cuDeviceGetUuid_v2(char *uuid, int device) { memset(uuid, 0x10 + device, 16); return 0; }
"""


def driver(folder: Path, result: int) -> str:
    """Return a driver with the devices 5 and 4, or one that answers with an error."""
    library = folder / f"libcuda-{result}.so"
    words = ["gcc", "-shared", "-fPIC", f"-DRESULT={result}", "-x", "c", "-", "-o", str(library)]
    subprocess.run(words, input=_DRIVER, text=True, check=True)
    return str(library)


def test_the_driver_names_the_devices_in_the_order_of_cuda(tmp_path: Path) -> None:
    assert cuda_uuids(driver(tmp_path, 0)) == [
        "15151515-1515-1515-1515-151515151515",
        "14141414-1414-1414-1414-141414141414",
    ]
    assert cuda_uuids(driver(tmp_path, 100)) == []
    with pytest.raises(AbsentError, match="answers with error 803"):
        cuda_uuids(driver(tmp_path, 803))
    with pytest.raises(AbsentError, match="is not installed"):
        cuda_uuids(str(tmp_path / "none.so"))


def test_nvml_is_asked_for_what_the_driver_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the variable says: with another order, an index of CUDA is none of NVML."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    monkeypatch.setattr(module, "cuda_uuids", lambda: ["bbbb"])
    assert visible_gpus(FakeNvml()) == ["bbbb"]


@pytest.mark.gpu
def test_the_driver_and_torch_agree() -> None:
    if not torch.cuda.is_available():
        pytest.skip("torch sees no NVIDIA accelerator")
    properties = [torch.cuda.get_device_properties(n) for n in range(torch.cuda.device_count())]
    assert cuda_uuids() == [str(item.uuid) for item in properties]
    hidden = {**os.environ, "CUDA_VISIBLE_DEVICES": f"GPU-{cuda_uuids()[-1]}"}
    code = "from vflops.machine.visible_devices import cuda_uuids; print(*cuda_uuids())"
    done = subprocess.run(
        [sys.executable, "-c", code], env=hidden, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == cuda_uuids()[-1:]
    assert driver_present()
