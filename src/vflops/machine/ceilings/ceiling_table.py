"""The live table of measurements, one row per item, for terminals of at least 80 columns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.table import Table
from rich.text import Text

from vflops import units
from vflops.machine.ceilings.ceiling_plan import Item, Key, mode_of
from vflops.record.formats.measurement import Measurement


def table(
    items: Sequence[Item],
    measurements: Iterable[Measurement],
    *,
    running: Key | None = None,
    rows: int | None = None,
) -> Table:
    """Return the table of all measured items and the one that is running.

    ``rows`` limits the table to the last items, for a terminal with few lines.
    """
    results = {measurement.key: measurement for measurement in measurements}
    visible = [item for item in items if item.key in results or item.key == running]
    visible = visible[-rows:] if rows else visible
    grid = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold", expand=True)
    grid.add_column("benchmark", no_wrap=True)
    grid.add_column("case", no_wrap=True)
    grid.add_column("prec.", no_wrap=True)
    grid.add_column("value", justify="right", no_wrap=True)
    grid.add_column("spread", justify="right", no_wrap=True)
    grid.add_column("setting", no_wrap=True, overflow="ellipsis", ratio=1)
    grid.add_column("check", no_wrap=True)
    previous = ""
    for item in visible:
        name = _BENCHMARKS.get(item.benchmark, item.benchmark) if item.benchmark != previous else ""
        previous = item.benchmark
        case = _CASES.get(item.case, item.case)
        if item.benchmark == "all-reduce-modes":
            case = "{} ×{}".format(*mode_of(item.case))
        cells = (
            _cells(results[item.key]) if item.key in results else _running(len(results), len(items))
        )
        grid.add_row(name, case, item.precision or "", *cells)
    return grid


_BENCHMARKS = {"all-reduce-modes": "modes"}
_CASES = {
    "input-gradient": "input grad.",
    "weight-gradient": "weight grad.",
    "sequential-write-fsync": "write + fsync",
    "sequential-read": "read",
    "random-read-4k": "random 4k",
    "host-to-device-pinned": "to, pinned",
    "host-to-device-pageable": "to, pageable",
    "device-to-host-pinned": "from, pinned",
    "device-to-host-pageable": "from, pageable",
}
"""Short names, so that a row fits into 80 columns."""


def best_lines(measurements: Iterable[Measurement]) -> list[str]:
    """Return a line for each benchmark with its highest value in each precision and unit."""
    best: dict[str, dict[tuple[str | None, str], float]] = {}
    for item in measurements:
        if item.value is not None:
            values = best.setdefault(item.benchmark, {})
            key = item.precision, item.unit
            values[key] = max(item.value, values.get(key, item.value))
    width = max(map(len, best), default=0)
    return [
        f"{name:{width}}  " + ", ".join(_value(*key, value) for key, value in values.items())
        for name, values in best.items()
    ]


def _value(precision: str | None, unit: str, value: float) -> str:
    return " ".join(filter(None, (precision, units.quantity(value, unit))))


def _cells(measurement: Measurement) -> tuple[str | Text, ...]:
    if measurement.value is None:
        return ("—", "", Text(_short(measurement.reason or ""), style="dim"), "")
    setting = Text(format_setting(measurement.setting), style="dim")
    if measurement.caveat:  # yellow, so that it can be seen where there is no room for words
        setting.stylize("yellow")
        setting.append(f"  {_short(measurement.caveat)}", style="yellow")
    return (
        units.quantity(measurement.value, measurement.unit),
        units.percent(measurement.spread) if measurement.spread is not None else "",
        setting,
        Text("ok", style="green") if measurement.error is not None else "",
    )


def _short(reason: str) -> str:
    """Return the part of a reason before the explanation; the record has the full text."""
    return reason.partition(": ")[0]


def _running(done: int, total: int) -> tuple[str | Text, ...]:
    return (Text("…", style="cyan"), "", Text(f"{done} of {total} done", style="cyan"), "")


def format_setting(setting: dict[str, int | str]) -> str:
    """Return a setting as one short line: ``4096x4096x4096 NN``, ``block 4 MiB 1 thread`` …"""
    rest = dict(setting)
    words: list[str] = []
    if {"m", "n", "k"} <= rest.keys():
        words.append(units.shape(int(rest.pop(side)) for side in "mnk"))
    for name, value in rest.items():
        if name.endswith("bytes"):
            words.append(
                f"{name.removesuffix('bytes').rstrip('_')} {units.binary(int(value))}".strip()
            )
        elif isinstance(value, int):
            words.append(f"{value} {name.removesuffix('s') if value == 1 else name}")
        else:
            words.append(value)
    return " ".join(words)
