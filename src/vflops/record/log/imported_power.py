"""Imports power logs of nodes or power supplies into a run, converted to telemetry files."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

from vflops.errors import UsageError
from vflops.record.files import atomic
from vflops.record.files.folder_listing import matching_files
from vflops.record.files.read_once import read_bytes
from vflops.record.formats.telemetry import Header, Series, Telemetry
from vflops.record.log.power_csv import Column, read_power_csv
from vflops.record.log.telemetry_log import header_line, read, sample_line


def import_power(
    folder: Path, log: Path, *, node: int = 0, spans: Sequence[tuple[float, float]] | None = None
) -> Path:
    """Store the power log ``log`` in the run folder and return the path of the new file.

    The file is ``telemetry/imported-<n>.jsonl``, in the telemetry format. ``spans`` are the start
    and end times of training as Unix time; a log that overlaps none of them raises ``UsageError``.
    """
    _, samples = read_power_csv(log)
    first_s, last_s = samples[0][0], samples[-1][0]
    if spans is not None and not any(
        start_s <= last_s and first_s <= end_s for start_s, end_s in spans
    ):
        raise UsageError(
            f"{log} covers {_utc(first_s)} to {_utc(last_s)}, but {folder} did not train "
            "in that time",
            hint="give a log from the time of the run; times without a zone are UTC",
        )
    text = _as_telemetry(log, node)
    imported = imported_files(folder)
    for path in imported:
        if read_bytes(path).partition(b"\n")[2] == text.encode().partition(b"\n")[2]:
            raise UsageError(
                f"{log} was already imported as {path}",
                hint="there is nothing to do: importing it again would count its energy twice",
            )
    number = 1 + max((_number(path) for path in imported), default=0)
    path = folder / "telemetry" / f"imported-{number}.jsonl"
    atomic.make_folder(path.parent)
    atomic.write_text(path, text)
    return path


def imported_files(folder: Path) -> list[Path]:
    """Return the logs that were imported into a run folder, in the order of import."""
    paths = matching_files(folder / "telemetry", "imported-*.jsonl")
    return sorted((path for path in paths if _number(path)), key=_number)


def read_imported(folder: Path, *, node: int = 0) -> list[Telemetry]:
    """Read the imported logs of one node; their times are Unix time."""
    logs = [read(path) for path in imported_files(folder)]
    return [log for log in logs if log.header.node == node]


def _utc(time_s: float) -> str:
    return datetime.fromtimestamp(time_s, UTC).isoformat(timespec="seconds")


def _number(path: Path) -> int:
    digits = path.stem.removeprefix("imported-")
    return int(digits) if digits.isascii() and digits.isdigit() else 0


def _as_telemetry(log: Path, node: int) -> str:
    columns, samples = read_power_csv(log)
    header = Header(
        node=node,
        clock="utc",
        interval_s=statistics.median(b_s - a_s for (a_s, _), (b_s, _) in pairwise(samples)),
        series=tuple(_series(column, log) for column in columns),
    )
    lines = (sample_line(time_s, time_s, values) for time_s, values in samples)
    return header_line(header) + "".join(lines)


def _series(column: Column, log: Path) -> Series:
    is_power = column.kind == "gauge"
    return Series(
        id="node.power" if is_power else "node.energy",
        title="node, power" if is_power else "node, energy",
        unit="W" if is_power else "J",
        source=f"imported: {log.name}",
        kind=column.kind,
        part="node",
    )
