"""The schema: value or reason, nine layers, and no torch needed to read it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import ValidationError

from vflops.errors import FolderError, UsageError
from vflops.record.formats.system import LAYERS, Fact, Layer, SystemRecord


def record(*facts: Fact) -> SystemRecord:
    layers = [Layer(name=name, facts=facts if name == "hardware" else ()) for name in LAYERS]
    return SystemRecord(gathered_utc="2026-01-01T00:00:00+00:00", layers=tuple(layers))


MODEL = Fact(name="cpu model", value="EPYC", source="/proc/cpuinfo")


@pytest.mark.parametrize(("value", "reason"), [(None, None), ("EPYC", "cannot be read")])
def test_a_fact_has_a_value_or_a_reason_but_not_both(value: str | None, reason: str | None) -> None:
    with pytest.raises(ValidationError, match="either a value or the reason"):
        Fact(name="cpu model", value=value, source="x", reason=reason)


@pytest.mark.parametrize("value", [0, False, 0.0])
def test_zero_and_false_are_values(value: float) -> None:
    fact = Fact(name="accelerators", value=value, source="x")
    assert type(fact.value) is type(value)


def test_a_name_stands_once_in_a_layer() -> None:
    with pytest.raises(ValidationError, match="two facts named 'cpu model'"):
        Layer(name="hardware", facts=(MODEL, MODEL))


def test_all_nine_layers_in_order_make_a_record() -> None:
    layers = tuple(Layer(name=name, facts=()) for name in reversed(LAYERS))
    with pytest.raises(ValidationError, match="expected the layers"):
        SystemRecord(gathered_utc="now", layers=layers)


def test_a_fact_is_found_by_layer_and_name() -> None:
    assert record(MODEL).fact("hardware", "cpu model") == MODEL


def test_a_wrong_name_suggests_the_right_one() -> None:
    with pytest.raises(UsageError) as layer:
        record(MODEL).layer("hardwear")
    assert layer.value.hint == "did you mean hardware?"
    with pytest.raises(UsageError) as fact:
        record(MODEL).fact("hardware", "cpu modell")
    assert fact.value.hint == "did you mean cpu model?"


def test_a_pattern_finds_the_same_figure_of_all_devices() -> None:
    facts = [
        Fact(name=f"accelerator {n} {what}", value=n, source="x")
        for n in range(2)
        for what in ("memory", "memory bus width")
    ]
    memory_facts = record(*facts).matching("hardware", "accelerator * memory")
    assert [fact.name for fact in memory_facts] == ["accelerator 0 memory", "accelerator 1 memory"]


def test_the_file_gives_the_record_back_with_its_types(tmp_path: Path) -> None:
    facts = [
        Fact(name=f"{kind}", value=value, unit="B", source="x")
        for kind, value in {"int": 1, "float": 1.0, "bool": True, "text": "1"}.items()
    ]
    absent = Fact(name="absent", value=None, source="x", reason="not there")
    written = record(*facts, absent)
    written.write(tmp_path / "system.json")
    read = SystemRecord.read(tmp_path / "system.json")
    assert read == written
    assert [type(fact.value) for fact in read.layer("hardware").facts] == [
        *(int, float, bool, str),
        type(None),
    ]


def test_another_schema_is_refused(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text('{"schema": "vflops.run/1"}')
    with pytest.raises(FolderError, match=r"not a vflops\.system file"):
        SystemRecord.read(tmp_path / "run.json")


@pytest.mark.parametrize(
    "module",
    [
        "record.formats.system",
        "machine.system.mlperf_system",
        "machine.system.system_table",
        "machine.system.gather",
    ],
)
def test_importing_needs_no_torch(module: str) -> None:
    code = f"import sys, vflops.{module}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


@pytest.mark.parametrize("value", [10**400, -(10**41), 1e308])
def test_a_number_that_no_machine_has_is_named(value: float) -> None:
    with pytest.raises(ValidationError, match=r"the fact 'memory' is -?1.*, expected a number"):
        Fact(name="memory", value=value, unit="B", source="x")
