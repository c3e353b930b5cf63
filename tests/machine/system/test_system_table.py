"""The table for the console: every value and reason is in it, at any width."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from tests.support.system_fakes import FakeNvml, fake_torch
from vflops.machine.system.accelerator import accelerator_facts
from vflops.machine.system.fact_text import format_fact
from vflops.machine.system.gather import gather
from vflops.machine.system.nvidia import Nvidia
from vflops.machine.system.system_table import MIN_WIDTH_FOR_SOURCES, SOURCE_WIDTH, tables
from vflops.record.formats.system import LAYERS, Fact, Layer, SystemRecord


def printed(record: SystemRecord, width: int, *, colour: bool = False) -> str:
    file = io.StringIO()
    console = Console(width=width, file=file, force_terminal=colour)
    for section in tables(record):
        console.print(section)
    return file.getvalue()


def record_of(*hardware: Fact) -> SystemRecord:
    layers = [Layer(name=name, facts=hardware if name == "hardware" else ()) for name in LAYERS]
    return SystemRecord(gathered_utc="2026-01-01T00:00:00+00:00", layers=tuple(layers))


def assert_all_is_printed(record: SystemRecord, width: int) -> None:
    """Assert that no line is too long, and that every value and every reason is complete."""
    out = printed(record, width)
    assert max(map(len, out.splitlines())) <= width
    values, lines = value_column(record, out, width), without_spaces(out)
    for layer in record.layers:
        assert layer.name in out
        for fact in layer.facts:
            if fact.value is not None:
                assert without_spaces(format_fact(fact)) in values, fact.name
            else:
                assert without_spaces(str(fact.reason)) in lines, fact.name


def value_column(record: SystemRecord, out: str, width: int) -> str:
    """Return the text of the value column: a long value is wrapped inside of its cell."""
    start = tables(record)[0].label_width + 2
    end = width - SOURCE_WIDTH - 2 if width >= MIN_WIDTH_FOR_SOURCES else width
    return without_spaces("".join(line[start:end] for line in out.splitlines()))


def without_spaces(text: str) -> str:
    return "".join(text.split())


WIDTHS = pytest.mark.parametrize("width", [40, 80, 109, 110, 120, 300])


@WIDTHS
def test_all_of_this_machine_is_in_it(tmp_path: Path, width: int) -> None:
    assert_all_is_printed(gather(tmp_path), width)


@pytest.mark.parametrize("width", [40, 80, 120, 300])
def test_all_of_a_stored_machine_is_in_it(described: SystemRecord, width: int) -> None:
    assert_all_is_printed(described, width)


LARGE = (
    Fact(name="cpu model", value="Intel(R) Xeon(R) " + "Platinum " * 12, source="/proc/cpuinfo"),
    Fact(name="logical cpus", value=256, source="/sys/devices/system/cpu/online"),
    Fact(name="instruction sets", value="avx512_" + "vnni_" * 50, source="/proc/cpuinfo"),
    Fact(name="cores", value=",".join(map(str, range(256))), source="/" + "sys/" * 30),
    Fact(name="memory", value=6 * 2**40, unit="B", source="/proc/meminfo"),
    Fact(name="interface " + "e" * 60 + " state", value="up and running", source="/sys"),
    *(Fact(name=f"accelerator {n} model", value=f"H{n} " * 20, source="NVML") for n in range(16)),
)
EMPTY = (
    *(Fact(name=f"figure {n}", value=None, source="x", reason="no driver") for n in range(60)),
    Fact(name="machine model", value=None, source="x", reason="the firmware gives " + "no " * 90),
    Fact(name="huge pages", value=None, source="x", reason="/sys/" + "x" * 200 + " is empty"),
    Fact(name="swap", value=0, unit="B", source=""),
    Fact(name="container", value="", source=""),
)


@WIDTHS
@pytest.mark.parametrize("facts", [LARGE, EMPTY, ()], ids=["large", "empty", "unknown"])
def test_all_of_a_strange_machine_is_in_it(facts: tuple[Fact, ...], width: int) -> None:
    assert_all_is_printed(record_of(*facts), width)


def test_sources_are_shown_on_a_wide_console(tmp_path: Path) -> None:
    record = record_of(Fact(name="cpu model", value="EPYC", source="/proc/cpuinfo"))
    assert "/proc/cpuinfo" in printed(record, 120)
    assert "/proc/cpuinfo" not in printed(record, 80)


def test_equal_accelerators_share_a_line_and_unequal_ones_do_not() -> None:
    facts = accelerator_facts(fake_torch(["aaaa", "bbbb"]), Nvidia(FakeNvml()))
    out = printed(record_of(*facts), 120)
    assert "accelerator 0–1 model" in out
    assert "accelerator 0 nvlinks active" in out
    assert "accelerator 1 nvlinks active" in out
    assert out.count("NVIDIA H200") == 1


@pytest.mark.parametrize(
    ("members", "words"),
    [
        (["0", "1", "2", "10"], "rdma 0–2, 10 rate"),
        (["0", "10", "11", "9"], "rdma 0, 9–11 rate"),
        (["mlx5_0:1", "mlx5_1:1", "mlx5_2:1"], "rdma mlx5_0–2:1 rate"),
        (["mlx5_0:1", "mlx5_0:2"], "rdma mlx5_0:1, mlx5_0:2 rate"),
        (["enp1s0f0np0", "enp1s0f0np1", "wlan"], "rdma enp1s0f0np0–1, wlan rate"),
        (["ib07", "ib08"], "rdma ib07, ib08 rate"),
        (["eth0.4094"], "rdma eth0.4094 rate"),
    ],
)
def test_consecutive_devices_are_a_range(members: list[str], words: str) -> None:
    facts = [Fact(name=f"rdma {name} rate", value=400, source="x") for name in members]
    assert f"  {words} " in printed(record_of(*facts), 120)


def test_a_label_that_wraps_stays_indented() -> None:
    record = record_of(Fact(name="interface " + "name " * 20, value="up", source="x"))
    lines = printed(record, 80).splitlines()
    assert len(lines) > 3
    assert all(line.startswith("  ") for line in lines[1:4])


def test_one_reason_for_several_facts_is_said_once_and_grey() -> None:
    facts = [Fact(name=n, value=None, source="x", reason="no driver") for n in ("ecc", "mig")]
    assert "— ecc, mig: no driver" in printed(record_of(*facts), 80)
    assert "\x1b[2mecc, mig: no driver" in printed(record_of(*facts), 80, colour=True)


def test_brackets_in_a_value_are_not_taken_for_markup() -> None:
    record = record_of(Fact(name="pages", value="[bold]always", source="x"))
    assert "[bold]always" in printed(record, 80)


@pytest.mark.parametrize(
    ("value", "unit", "words"),
    [
        (25274793984, "B", "23.54 GiB"),
        (80 * 2**30, "B", "80 GiB"),
        (0, "B", "0 B"),
        ("unlimited", "B", "unlimited"),
        (25000, "Mbit/s", "25.0 Gbit/s"),
        (400.0, "Gbit/s", "400 Gbit/s"),
        (2445.4, "MHz", "2445.4 MHz"),
        (700.0, "W", "700 W"),
        (True, None, "yes"),
        (False, None, "no"),
        (0, None, "0"),
        (None, None, "—"),
    ],
)
def test_values_as_people_write_them(value: Any, unit: str | None, words: str) -> None:
    reason = "not there" if value is None else None
    assert format_fact(Fact(name="x", value=value, unit=unit, source="y", reason=reason)) == words
