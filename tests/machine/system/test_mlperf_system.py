"""MLPerf's description, verified by mlperf-logging's checker."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from mlperf_logging.system_desc_checker.system_desc_checker import check_system_desc

from tests.support.system_fakes import FakeNvml, fake_torch
from vflops.errors import UsageError
from vflops.machine.system.accelerator import accelerator_facts
from vflops.machine.system.gather import gather
from vflops.machine.system.mlperf_system import STATUSES, system_desc
from vflops.machine.system.nvidia import Nvidia
from vflops.record.formats.system import LAYERS, Fact, Layer, SystemRecord


def describe(record: SystemRecord, **changes: Any) -> dict[str, str]:
    given = {"submitter": "us", "division": "open", "system_name": "box", **changes}
    return system_desc(record, **given)


def is_valid(description: dict[str, str], folder: Path) -> bool:
    file = folder / "box.json"
    file.write_text(json.dumps(description))
    valid, name, _, _ = check_system_desc(str(file), "training", "4.0.0")
    assert name == description["system_name"]
    return bool(valid)


def record_of(*hardware: Fact) -> SystemRecord:
    layers = [Layer(name=name, facts=hardware if name == "hardware" else ()) for name in LAYERS]
    return SystemRecord(gathered_utc="2026-01-01T00:00:00+00:00", layers=tuple(layers))


def known(**values: Any) -> list[Fact]:
    return [
        Fact(name=name.replace("_", " "), value=value, source="x") for name, value in values.items()
    ]


def test_the_checker_takes_this_machine(tmp_path: Path) -> None:
    assert_complete(describe(gather(tmp_path)), tmp_path)


def test_the_checker_takes_a_stored_machine(described: SystemRecord, tmp_path: Path) -> None:
    assert_complete(describe(described), tmp_path)


def assert_complete(description: dict[str, str], folder: Path) -> None:
    assert is_valid(description, folder)
    assert len(description) == 33
    assert {type(value) for value in description.values()} == {str}
    assert all(description.values())


def test_the_checker_wants_every_key(tmp_path: Path) -> None:
    description = describe(record_of())
    assert is_valid(description, tmp_path)
    for key in description:
        if key != "system_name":
            incomplete = {name: text for name, text in description.items() if name != key}
            assert not is_valid(incomplete, tmp_path), key


def test_the_checker_takes_every_status_that_we_take(tmp_path: Path) -> None:
    for status in STATUSES:
        assert is_valid(describe(record_of(), status=status), tmp_path)
    assert not is_valid(describe(record_of()) | {"status": "on sale"}, tmp_path)


def test_a_wrong_division_or_status_is_refused() -> None:
    with pytest.raises(UsageError, match="unknown division 'opne'") as division:
        describe(record_of(), division="opne")
    assert division.value.hint == "did you mean open?"
    with pytest.raises(UsageError, match="unknown status 'on sale'"):
        describe(record_of(), status="on sale")


def test_a_record_without_torch_can_be_described(tmp_path: Path) -> None:
    description = describe(gather(tmp_path, import_torch=False))
    assert is_valid(description, tmp_path)
    assert description["framework"] == "not measured: torch was not imported"


def test_cores_are_counted_for_one_processor() -> None:
    facts = known(cpu_sockets=2, physical_cores=112, logical_cpus=224, usable_cpus=224)
    description = describe(record_of(*facts))
    assert description["host_processors_per_node"] == "2"
    assert description["host_processor_core_count"] == "56"
    assert description["host_processor_vcpu_count"] == "224"
    assert description["hw_notes"] == "none"


def test_what_limits_the_node_is_noted() -> None:
    facts = known(logical_cpus=64, usable_cpus=8)
    assert describe(record_of(*facts))["hw_notes"] == "8 of 64 CPUs are usable"


def test_what_is_unknown_is_not_noted_as_a_limit() -> None:
    facts = known(logical_cpus=64, accelerators_seen_by_NVML=8)
    assert describe(record_of(*facts))["hw_notes"] == "none"


def test_unknown_figures_carry_their_reason_and_no_comma() -> None:
    absent = Fact(name="cpu model", value=None, source="x", reason="hidden, as in most machines")
    description = describe(record_of(absent))
    text = description["host_processor_model_name"]
    assert text == "not measured: hidden; as in most machines"


def test_links_are_counted_by_speed() -> None:
    facts = [
        Fact(name=f"rdma mlx5_{n}:1 {what}", value=value, unit=unit, source="x")
        for n in range(3)
        for what, value, unit in [
            ("rate", 400.0, "Gbit/s"),
            ("state", "active" if n else "down", None),
            ("link", "InfiniBand", None),
        ]
    ]
    eth = Fact(name="interface eth0 speed", value=25000, unit="Mbit/s", source="x")
    description = describe(record_of(*facts, eth))
    assert description["host_networking"] == (
        "rdma 2 x 400 Gbit/s InfiniBand; interfaces 1 x 25.0 Gbit/s"
    )


def test_accelerators_that_are_alike_are_said_once() -> None:
    facts = accelerator_facts(fake_torch(["aaaa", "bbbb"]), Nvidia(FakeNvml()))
    description = describe(record_of(*facts))
    assert {key: text for key, text in description.items() if key.startswith("accelerator")} == {
        "accelerators_per_node": "2",
        "accelerator_model_name": "NVIDIA H200",
        "accelerator_host_interconnect": "PCIe 5 x16",
        "accelerator_frequency": "1980 MHz",
        "accelerator_on-chip_memories": "L2 60 MiB",
        "accelerator_memory_configuration": "6144 bit at 3201 MHz",
        "accelerator_memory_capacity": "140.4 GiB",
        "accelerator_interconnect": "NVLink: 18 links; NVLink: 9 links",
        "accelerator_interconnect_topology": "not measured: vflops does not read it from NVML",
    }


def test_a_node_without_accelerators_needs_no_figures_of_them() -> None:
    description = describe(record_of(*known(accelerators=0)))
    assert description["accelerators_per_node"] == "0"
    assert description["accelerator_model_name"] == "N/A: no accelerator"


def test_accelerators_that_torch_cannot_use_are_noted() -> None:
    facts = accelerator_facts(fake_torch([]), Nvidia(FakeNvml()))
    assert "0 of 2 accelerators are usable" in describe(record_of(*facts))["hw_notes"]
