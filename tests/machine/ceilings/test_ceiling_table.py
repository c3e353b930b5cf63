from __future__ import annotations

import io

import pytest
from rich.console import Console

from vflops.config.settings import MicroSettings
from vflops.machine.ceilings.ceiling_plan import Item, plan
from vflops.machine.ceilings.ceiling_table import best_lines, format_setting, table
from vflops.record.formats.measurement import Measurement

ITEMS = plan(MicroSettings(), accelerators=0)


def _measured(item: Item) -> Measurement:
    if item.precision == "tf32":
        return item.absent_measurement(
            "cpu", "cpu has no tf32: asked for it, torch's product is as exact"
        )
    setting: dict[str, int | str] = {"m": 4096, "n": 8192, "k": 2048, "layout": "NT"}
    return item.measurement("cpu", [1.8e11, 1.82e11, 1.9e11], setting=setting, error=1e-7)


def _shown(width: int, count: int, rows: int | None = None) -> list[str]:
    console = Console(width=width, file=io.StringIO(), color_system=None)
    measurements = [_measured(item) for item in ITEMS[:count]]
    running = ITEMS[count].key if count < len(ITEMS) else None
    console.print(table(ITEMS, measurements, running=running, rows=rows))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().rstrip("\n").split("\n")


@pytest.mark.parametrize("width", [80, 120])
def test_a_row_an_item_fits_the_terminal(width: int) -> None:
    lines = _shown(width, len(ITEMS))
    assert len(lines) == 1 + len(ITEMS)
    assert max(map(len, lines)) <= width
    for word in ("benchmark", "case", "value", "setting", "check"):
        assert word in lines[0]
    assert "182 GFLOPS" in lines[1]
    assert lines[1].rstrip().endswith("ok")
    assert "cpu has no tf32" in lines[3]
    assert all(item.case[:4] in "\n".join(lines) for item in ITEMS if "-" not in item.case)


@pytest.mark.parametrize("width", [80, 120])
def test_values_are_never_cut(width: int) -> None:
    for line, item in zip(_shown(width, len(ITEMS))[1:], ITEMS, strict=True):
        if item.precision != "tf32":
            assert f"182 {'GFLOPS' if item.unit == 'FLOPS' else 'G' + item.unit}" in line


def test_what_is_running_is_the_last_row() -> None:
    lines = _shown(100, 3)
    assert len(lines) == 1 + 3 + 1
    assert f"3 of {len(ITEMS)} done" in lines[-1]


def test_a_low_terminal_shows_the_last_rows() -> None:
    lines = _shown(100, 10, rows=4)
    assert len(lines) == 1 + 4
    assert "10 of" in lines[-1]


@pytest.mark.parametrize("width", [80, 140])
def test_a_caveat_does_not_hide_the_setting(width: int) -> None:
    console = Console(
        width=width, file=io.StringIO(), color_system="truecolor", force_terminal=True
    )
    caveat = "only 4 of 54 settings tried in the time: the ceiling may be higher"
    measurement = _measured(ITEMS[0]).model_copy(update={"caveat": caveat})
    console.print(table(ITEMS, [measurement]))
    assert isinstance(console.file, io.StringIO)
    line = next(line for line in console.file.getvalue().splitlines() if "182 GFLOPS" in line)
    assert "33m4096x8192x2048 NT" in line  # in yellow
    assert ("only 4 of 54 settings tried in the time" in line) is (width == 140)


def test_settings_are_short() -> None:
    assert format_setting({"m": 256, "n": 512, "k": 128, "layout": "TN", "threads": 2}) == (
        "256x512x128 TN 2 threads"
    )
    assert format_setting({"block_bytes": 4 << 20, "threads": 1, "access": "direct"}) == (
        "block 4 MiB 1 thread direct"
    )
    assert format_setting({"bytes": 1 << 10, "ranks": 2}) == "1 KiB 2 ranks"


def test_the_highest_value_of_each_benchmark_and_precision_is_one_line() -> None:
    slow, fast = (
        ITEMS[number].measurement("cpu", [value], setting={}, error=1e-7)
        for number, value in ((0, 1e11), (0, 3e11))
    )
    absent = ITEMS[0].absent_measurement("cpu", "no time was left")
    (line,) = best_lines([slow, fast, absent])
    assert line.split() == [ITEMS[0].benchmark, str(ITEMS[0].precision), "300", "GFLOPS"]
    assert best_lines([absent]) == []
