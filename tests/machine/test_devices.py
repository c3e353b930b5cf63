from __future__ import annotations

import pytest
import torch

from tests.support.micro_tasks import CPU
from vflops.errors import UsageError
from vflops.machine import devices
from vflops.machine.devices import pick, threads


def test_auto_is_the_accelerator_where_there_is_one_else_the_cpu() -> None:
    expected = devices.available()[-1 if not torch.accelerator.is_available() else 1]
    assert pick("auto").name == expected
    assert pick("cpu") == CPU


def test_an_unknown_device_suggests_the_nearest() -> None:
    with pytest.raises(UsageError, match="unknown device 'cpuu'") as caught:
        pick("cpuu")
    assert caught.value.hint == "did you mean cpu?"


@pytest.mark.parametrize("name", ["cuda", "cuda:0", "xpu", "mps:3"])
def test_a_device_that_is_not_here_is_named_with_those_that_are(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(devices, "available", lambda: ["cpu"])
    with pytest.raises(
        UsageError, match=f"{name!r} is not available: torch sees no accelerator"
    ) as no:
        pick(name)
    assert no.value.hint == "set micro.device to one of: auto, cpu"


def test_an_index_beyond_the_last_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "available", lambda: ["cpu", "cuda:0", "cuda:1"])
    assert pick("auto").name == pick("cuda").name == "cuda:0"
    assert pick("cuda:1").name == "cuda:1"
    with pytest.raises(
        UsageError, match="device 'cuda:2' is not available: the number of accelerators is 2"
    ):
        pick("cuda:2")


def test_time_is_that_of_one_call() -> None:
    calls = []
    assert CPU.time_s(lambda: calls.append(1), calls=7) < 1e-3
    assert len(calls) == 7


def test_threads_come_back() -> None:
    before = torch.get_num_threads()
    with pytest.raises(ValueError, match="stop"), threads(1):
        assert torch.get_num_threads() == 1
        raise ValueError("stop")
    assert torch.get_num_threads() == before


def test_memory_and_cache_of_the_cpu_are_plausible() -> None:
    assert 1 << 20 < CPU.free_bytes() < 1 << 50
    assert 1 << 18 <= CPU.cache_bytes() <= 1 << 34


@pytest.mark.gpu
def test_an_accelerator_tells_its_memory_and_times_its_own_work() -> None:
    if not torch.accelerator.is_available():
        pytest.skip("torch sees no accelerator")
    here = pick("auto")
    assert here.free_bytes() > 1 << 28
    numbers = torch.randn(1024, 1024, device=here.torch_device)
    with here.current():
        assert 0 < here.time_s(lambda: numbers @ numbers, calls=3) < 1
