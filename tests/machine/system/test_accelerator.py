"""Accelerators through a fake torch and a fake NVML; and a real one if there is one."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import pytest

from tests.support.system_fakes import FakeNvml, FakeNvmlError, fake_torch, named, value
from vflops.machine import nvml as nvml_module
from vflops.machine.probe import AbsentError
from vflops.machine.system.accelerator import accelerator_facts
from vflops.machine.system.gather import gather
from vflops.machine.system.nvidia import NVIDIA_FIGURES, Nvidia, nvidia
from vflops.machine.system.torch_module import NoTorch
from vflops.machine.system.vendor import FIGURES, NoVendor

HINT = "pynvml is not installed: pip install nvidia-ml-py"


def test_nvml_gives_every_figure_with_its_unit() -> None:
    facts = Nvidia(FakeNvml()).device_facts("accelerator 0", lambda: 0)
    expected = {
        "model": "NVIDIA H200",
        "memory": 150754820096,
        "memory bus width": 6144,
        "clock max": 1980,
        "clock now": 345,
        "memory clock max": 3201,
        "memory clock now": 3201,
        "power limit": 650.5,
        "power limit by default": 700.0,
        "pcie generation max": 5,
        "pcie generation now": 1,
        "pcie lanes max": 16,
        "pcie lanes now": 16,
        "compute capability": "9.0",
        "ecc": True,
        "mig": False,
        "nvlinks active": 18,
        "persistence mode": True,
    }
    assert {fact.name.removeprefix("accelerator 0 "): fact.value for fact in facts} == expected
    assert named(facts, "accelerator 0 power limit").unit == "W"


def test_what_a_device_does_not_have_is_a_reason_and_not_an_error() -> None:
    facts = Nvidia(FakeNvml()).device_facts("accelerator 1", lambda: 1)
    assert named(facts, "accelerator 1 ecc").reason == "NVML answers: Not Supported"
    assert value(facts, "accelerator 1 nvlinks active") == 9


def test_versions_of_the_driver() -> None:
    assert Nvidia(FakeNvml()).driver() == "570.86.15"
    assert Nvidia(FakeNvml()).cuda() == "12.8"


def test_nvml_is_closed_after_use(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml = FakeNvml()
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    with nvidia() as vendor:
        assert nvml.open == 1
        assert vendor.count() == 2
    assert nvml.open == 0


def test_a_driver_leaves_signs_of_a_device(tmp_path: Path) -> None:
    assert not nvml_module.driver_present(tmp_path)
    (tmp_path / "proc/driver/nvidia").mkdir(parents=True)
    assert nvml_module.driver_present(tmp_path)


def test_without_pynvml_the_reason_has_a_hint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvml_module, "driver_present", lambda root: True)
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with nvidia() as vendor:
        facts = vendor.device_facts("accelerator 0", lambda: 0)
        with pytest.raises(AbsentError, match="pip install nvidia-ml-py"):
            vendor.driver()
    assert {fact.reason for fact in facts} == {HINT}
    assert len(facts) == len(NVIDIA_FIGURES)


def test_without_a_driver_nvml_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml = FakeNvml()
    monkeypatch.setattr(nvml_module, "driver_present", lambda root: True)

    def fail() -> None:
        raise FakeNvmlError("Driver Not Loaded")

    monkeypatch.setattr(nvml, "nvmlInit", fail)
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    with nvidia() as vendor, pytest.raises(AbsentError, match=r"\(Driver Not Loaded\)"):
        vendor.count()


def test_a_device_of_torch_is_found_in_nvml_by_its_uuid() -> None:
    # CUDA_VISIBLE_DEVICES=1: torch's device 0 is NVML's device 1, the one without ECC.
    facts = accelerator_facts(fake_torch(["bbbb"]), Nvidia(FakeNvml()))
    assert value(facts, "accelerators") == 1
    assert value(facts, "accelerators seen by NVML") == 2
    assert value(facts, "accelerator 0 nvlinks active") == 9
    assert value(facts, "accelerator 0 ecc") is None


def test_a_uuid_that_nvml_does_not_know_is_a_reason() -> None:
    facts = accelerator_facts(fake_torch(["cccc"]), Nvidia(FakeNvml()))
    assert named(facts, "accelerator 0 power limit").reason == "NVML answers: Not Found"
    assert value(facts, "accelerator 0 model") == "NVIDIA H200"  # from torch


def test_without_nvml_torch_still_tells_what_it_knows() -> None:
    facts = accelerator_facts(fake_torch(["aaaa"]), NoVendor("NVML", HINT, NVIDIA_FIGURES))
    assert value(facts, "accelerator 0 memory") == 149973250048
    assert named(facts, "accelerator 0 memory").source == "torch"
    assert value(facts, "accelerator 0 compute capability") == "9.0"
    assert value(facts, "accelerator 0 compute units") == 132
    assert named(facts, "accelerator 0 power limit").reason == HINT


def test_nvml_comes_before_torch_where_both_know() -> None:
    memory = named(
        accelerator_facts(fake_torch(["aaaa"]), Nvidia(FakeNvml())), "accelerator 0 memory"
    )
    assert (memory.value, memory.source) == (150754820096, "NVML")


def test_devices_that_torch_cannot_use_are_still_described() -> None:
    facts = accelerator_facts(fake_torch([]), Nvidia(FakeNvml()))
    assert value(facts, "accelerators") == 0
    assert value(facts, "accelerator 1 model") == "NVIDIA H200"


def test_without_torch_nvml_describes_the_devices() -> None:
    facts = accelerator_facts(NoTorch("torch was not imported"), Nvidia(FakeNvml()))
    assert named(facts, "accelerators").reason == "torch was not imported"
    assert value(facts, "accelerator 0 clock max") == 1980


@pytest.mark.parametrize(("hip", "kind"), [("6.2", "cuda"), (None, "xpu")])
def test_other_vendors_are_not_asked_of_nvml(hip: str | None, kind: str) -> None:
    facts = accelerator_facts(fake_torch(["aaaa"], hip=hip, kind=kind), Nvidia(FakeNvml()))
    assert "does not yet read" in str(named(facts, "accelerator 0 power limit").reason)
    assert value(facts, "accelerator 0 memory") == 149973250048
    assert {f"accelerator 0 {name}" for name in FIGURES} <= {fact.name for fact in facts}


def test_a_warning_of_torch_explains_why_it_sees_none() -> None:
    torch = fake_torch([])

    def count() -> int:
        warnings.warn("CUDA initialization: the driver is too old", stacklevel=1)
        return 0

    torch.accelerator.device_count = count
    kind = named(accelerator_facts(torch, Nvidia(FakeNvml())), "accelerator kind")
    assert kind.reason == ("torch sees no accelerator: CUDA initialization: the driver is too old")


@pytest.mark.gpu
def test_a_real_accelerator_has_a_model_and_memory(tmp_path: Path) -> None:
    import torch

    if not torch.accelerator.is_available():
        pytest.skip("torch sees no accelerator")
    record = gather(tmp_path)
    assert record.fact("hardware", "accelerators").value == torch.accelerator.device_count()
    assert record.fact("hardware", "accelerator 0 model").value
    memory_b = record.fact("hardware", "accelerator 0 memory").value
    assert isinstance(memory_b, int)
    assert memory_b > 2**30
