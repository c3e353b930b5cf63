from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from tests.support.micro_tasks import CPU, make_task
from vflops.machine import host
from vflops.machine.ceilings import host_transfer, memory_bandwidth
from vflops.machine.devices import Device, pick


@pytest.fixture(autouse=True)
def _small_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Device, "cache_bytes", lambda self: 1 << 20)


@pytest.mark.parametrize("case", ["copy", "triad"])
def test_bandwidth_is_of_arrays_beyond_the_cache(case: str) -> None:
    measurement = memory_bandwidth.measure(make_task("memory", case, seconds=0.15))
    assert measurement.value is not None
    assert measurement.value > 0
    assert "cached" not in (measurement.caveat or "")
    assert all(int(trial.setting["array_bytes"]) >= 4 << 20 for trial in measurement.tried)


def test_arrays_that_must_be_small_are_marked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Device, "free_bytes", lambda self: 4 << 20)
    measurement = memory_bandwidth.measure(make_task("memory", "copy"))
    assert (measurement.caveat or "").startswith("cached in part: no memory for larger arrays")


@pytest.mark.parametrize("case", ["copy", "triad"])
def test_without_free_memory_there_is_no_speed(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Device, "free_bytes", lambda self: 0)
    measurement = memory_bandwidth.measure(make_task("memory", case))
    assert (measurement.value, measurement.reason) == (
        None,
        "the free memory is too small for even the smallest operands",
    )


def test_a_copy_that_does_not_arrive_has_no_speed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.Tensor, "copy_", lambda self, source, non_blocking=False: self)
    measurement = memory_bandwidth.measure(make_task("memory", "copy", seconds=0.1))
    assert (measurement.value, (measurement.reason or "")[:13]) == (None, "wrong result:")


@pytest.mark.parametrize("factor", [0.0, math.nan])
def test_a_triad_that_leaves_out_its_factor_has_no_speed(
    factor: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = torch.add

    def wrong(b: torch.Tensor, c: torch.Tensor, *, alpha: float, out: torch.Tensor) -> torch.Tensor:
        return right(b, c, alpha=factor, out=out)

    monkeypatch.setattr(torch, "add", wrong)
    measurement = memory_bandwidth.measure(make_task("memory", "triad", seconds=0.1))
    assert (measurement.value, (measurement.reason or "")[:13]) == (None, "wrong result:")


def test_a_cpu_has_nothing_to_copy_to() -> None:
    item = make_task("transfer", "host-to-device-pinned").item
    assert (
        host_transfer.unavailable_reason(CPU, item)
        == "the device is the CPU: there is nothing to copy to"
    )


def _cache(cpus: Path, cpu: int, level: int, size: str, shared: str) -> None:
    index = cpus / f"cpu{cpu}" / "cache" / f"index{level}"
    index.mkdir(parents=True)
    (index / "level").write_text(f"{level}\n")
    (index / "size").write_text(f"{size}\n")
    (index / "shared_cpu_list").write_text(f"{shared}\n")


def test_last_level_caches_of_all_cores_are_summed_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cpus = tmp_path / "sys/devices/system/cpu"
    for cpu, shared in ((0, "0-1"), (1, "0-1"), (2, "2-3"), (3, "2-3")):
        _cache(cpus, cpu, 2, "512K", str(cpu))
        _cache(cpus, cpu, 3, "32M", shared)
    monkeypatch.setattr(host, "_ROOT", tmp_path)
    assert host.last_level_cache_bytes() == 64 << 20
    monkeypatch.setattr(host, "_ROOT", tmp_path / "nowhere")
    assert host.last_level_cache_bytes() is None


@pytest.mark.gpu
@pytest.mark.parametrize("case", ["host-to-device-pinned", "device-to-host-pageable"])
def test_an_accelerator_takes_and_gives_bytes(case: str) -> None:
    if not torch.accelerator.is_available():
        pytest.skip("torch sees no accelerator")
    measurement = host_transfer.measure(
        make_task("transfer", case, seconds=1.0, device=pick("auto"))
    )
    assert measurement.value is not None, measurement.reason
    assert measurement.value > 0
