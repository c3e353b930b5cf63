"""Reads a power log from CSV: a time column, and columns of power or of an energy counter."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from vflops.errors import UsageError, format_value
from vflops.record.files.regular_file import read_regular
from vflops.record.formats.telemetry import Kind

_TIME_NAMES = {"time", "timestamp", "utc", "time_utc", "utc_time", "datetime", "epoch", "epoch_s"}
_POWER_UNITS = {"w": 1.0, "watt": 1.0, "watts": 1.0, "kw": 1e3, "mw": 1e-3}
_ENERGY_UNITS = {"j": 1.0, "joule": 1.0, "joules": 1.0, "kj": 1e3, "wh": 3600.0, "kwh": 3.6e6}
_EXPECTED = "expected a time column and one such as power_w, power_kw, energy_j or energy_kwh"
_EARLIEST_S, _LATEST_S = 1e9, 1e10  # the years 2001 to 2286; milliseconds would be larger


@dataclass(frozen=True)
class Column:
    """A column of the log: power is a gauge, energy a counter."""

    index: int
    name: str
    kind: Kind
    scale: float
    """Factor that converts the values of the column to W or J."""


def read_power_csv(log: Path) -> tuple[list[Column], list[tuple[float, list[float | None]]]]:
    """Return the columns, and for each line the Unix time and its values in W or J.

    Raise ``UsageError`` with the line number and the value of the first error.
    """
    rows = _read_rows(log)
    names = next(rows, (0, []))[1]
    time_index, columns = _time_column(names, log), _value_columns(names, log)
    samples: list[tuple[float, list[float | None]]] = []
    for line, row in rows:
        where = f"{log}:{line}"
        _require_cells(row, len(names), where)
        time_s = _parse_time(row[time_index], where)
        if samples and time_s <= samples[-1][0]:
            raise UsageError(
                f"{where}: time {row[time_index]!r} is not later than the line before it",
                hint="sort the log by time and keep one reading per time",
            )
        samples.append((time_s, [_parse_value(row, column, where) for column in columns]))
    if len(samples) < 2:
        raise UsageError(
            f"{log} has {len(samples)} readings, expected two or more",
            hint="export a log that begins before the run and ends after it",
        )
    return columns, samples


def _read_rows(log: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield each line that is not blank, with its number; the first is the header."""
    try:
        text = read_regular(log).decode("utf-8-sig")
    except OSError as error:
        raise UsageError(
            f"cannot read {log}: {error.strerror or error}",
            hint=f"give the path of the CSV file that the meter wrote: {_EXPECTED}",
        ) from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{log} is not UTF-8: {error}", hint="save it as CSV in UTF-8") from error
    first = next((line for line in text.splitlines() if line.strip()), "")
    reader = csv.reader(text.splitlines(), delimiter=max(",;\t", key=first.count))
    try:
        for row in reader:
            if any(cell.strip() for cell in row):
                yield reader.line_num, [cell.strip() for cell in row]
    except csv.Error as error:
        raise UsageError(f"{log}:{reader.line_num}: not CSV: {error}") from error


def _require_cells(row: list[str], width: int, where: str) -> None:
    if len(row) != width:
        raise UsageError(
            f"{where} has {len(row)} cells, expected {width} as in the header",
            hint="complete or remove the line; write decimals with a point, not a comma",
        )


def _time_column(names: list[str], log: Path) -> int:
    indices = [index for index, name in enumerate(names) if _snake_case(name) in _TIME_NAMES]
    if len(indices) != 1:
        raise UsageError(
            f"{log} has {len(indices)} time columns in its header: {', '.join(names) or 'empty'}",
            hint="name one column time: UTC as 2026-01-31T12:00:00Z, or Unix time in seconds",
        )
    return indices[0]


def _value_columns(names: list[str], log: Path) -> list[Column]:
    columns = [
        column for index, name in enumerate(names) if (column := _parse_column(index, name, log))
    ]
    kinds = [column.kind for column in columns]
    if not columns or len(set(kinds)) != len(kinds):
        raise UsageError(
            f"{log} has {len(columns)} power or energy columns in its header: {', '.join(names)}",
            hint=f"{_EXPECTED}; at most one of each: import several power feeds one by one",
        )
    return columns


def _parse_column(index: int, name: str, log: Path) -> Column | None:
    """Return the column if its name gives power or energy with a known unit, else None."""
    quantity, _, unit = _snake_case(name).rpartition("_")
    if not re.search("power|energy", quantity):
        return None
    if re.search(r"(?<![A-Za-z])M[WJ](?![A-Za-z])", name):
        raise UsageError(
            f"{log}: the prefix in the unit of column {name!r} may mean mega or milli",
            hint="use W, kW, J, kJ, Wh or kWh",
        )
    if "power" in quantity and unit in _POWER_UNITS:
        return Column(index, name, "gauge", _POWER_UNITS[unit])
    if "energy" in quantity and unit in _ENERGY_UNITS:
        return Column(index, name, "counter", _ENERGY_UNITS[unit])
    return None


def _snake_case(name: str) -> str:
    """Return ``power_kw`` for ``Power (kW)``."""
    return re.sub("[^a-z0-9]+", "_", name.lower()).strip("_")


def _parse_time(cell: str, where: str) -> float:
    try:
        time_s = float(cell)
    except ValueError:
        return _parse_iso_time(cell, where)
    if not _EARLIEST_S < time_s < _LATEST_S:
        raise UsageError(
            f"{where}: time {format_value(cell)} is a number, but not Unix time in seconds",
            hint="divide milliseconds by 1000; local or relative times cannot be used",
        )
    return time_s


def _parse_iso_time(cell: str, where: str) -> float:
    try:
        parsed = datetime.fromisoformat(cell)
    except ValueError as error:
        raise UsageError(
            f"{where}: time {format_value(cell)} is neither ISO 8601 nor a number",
            hint="write it as 2026-01-31T12:00:00Z, in UTC, or as Unix time in seconds",
        ) from error
    time_s = (parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).timestamp()
    if not _EARLIEST_S < time_s < _LATEST_S:
        raise UsageError(
            f"{where}: time {cell!r} is not between the years 2001 and 2286",
            hint="correct the clock of the device that wrote the log",
        )
    return time_s


def _parse_value(row: list[str], column: Column, where: str) -> float | None:
    cell = row[column.index]
    if not cell:
        return None
    try:
        value = column.scale * float(cell)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value >= 0):
        raise UsageError(
            f"{where}: {column.name} is {format_value(cell)}, expected a number that is at least 0",
            hint="leave the cell empty where there was no reading; write decimals with a point",
        )
    return value
