"""Reads and writes telemetry files: a header, then one JSON object per sample.

Samples are flushed but not synced. Losing a sample in a power failure does no harm, while a sync
every second would slow down the disk that the training data is read from.
"""

from __future__ import annotations

import json
import math
from array import array
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import lru_cache
from io import BufferedReader
from pathlib import Path
from typing import Any

from vflops.errors import FolderError
from vflops.record.files.read_once import read_bytes
from vflops.record.files.regular_file import open_regular
from vflops.record.files.strict_json import parse_json
from vflops.record.formats.telemetry import Header, ProgramShare, Telemetry

_MAX_SHARED_BYTES = 1 << 16
_MAX_HEADER_BYTES = 1 << 24


class TelemetryWriter:
    """Appends samples to a new file; one writer per file. All methods may raise ``OSError``."""

    def __init__(self, path: Path, header: Header) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Unbuffered: a failed line must not be written again when the file is closed.
        self._file = path.open("xb", buffering=0)
        try:
            self._write(header_line(header))
        except OSError:
            self._file.close()
            raise

    def write(
        self,
        time_s: float,
        utc_s: float,
        values: Sequence[float | None],
        programs: Sequence[ProgramShare] | None = None,
    ) -> None:
        """Append one sample: one value per series of the header, None where a reading failed.

        ``programs`` are the busiest programs outside of the run since the first sample.
        """
        self._write(sample_line(time_s, utc_s, values, programs))

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _write(self, line: str) -> None:
        data = line.encode()
        written = self._file.write(data)
        if written != len(data):  # the line is incomplete, and the next one would be appended to it
            raise OSError(28, "No space left on device")


def header_line(header: Header) -> str:
    """Return the first line of a telemetry file."""
    return _line(json.loads(header.to_json()))


def sample_line(
    time_s: float,
    utc_s: float,
    values: Sequence[float | None],
    programs: Sequence[ProgramShare] | None = None,
) -> str:
    """Return one sample as a line of the file."""
    finite = [None if value is None or not math.isfinite(value) else value for value in values]
    utc = datetime.fromtimestamp(utc_s, UTC).isoformat(timespec="milliseconds")
    sample: dict[str, Any] = {"time_s": round(time_s, 6), "utc": utc, "values": finite}
    if programs is not None:
        sample["programs"] = [program.model_dump(mode="json") for program in programs]
    return _line(sample)


def read(path: Path) -> Telemetry:
    """Read every complete sample of ``path``; an incomplete last line is reported, not an error."""
    try:
        lines = read_bytes(path).split(b"\n")
    except OSError as error:
        raise FolderError(f"cannot read {path}: {error.strerror or error}") from error
    tail = lines.pop()
    torn = f"{path}:{len(lines) + 1}" if tail else None
    if not lines:
        raise FolderError(
            f"{path} has no header: it was cut off while its first line was written",
            hint="remove the file; the run has no telemetry",
        )
    header = _header(lines[0], path)
    samples = _Samples(len(header.series))
    faults = tuple(samples.add(lines[1:], path))
    return Telemetry(
        header,
        samples.times_s,
        samples.utc_s,
        samples.table,
        faults,
        torn,
        samples.programs,
    )


def read_header(path: Path) -> Header:
    """Read the header of a telemetry file."""
    try:
        with BufferedReader(open_regular(path)) as file:
            line = file.readline(_MAX_HEADER_BYTES)
    except OSError as error:
        raise FolderError(f"cannot read {path}: {error.strerror or error}") from error
    return _header(line, path)


class _Samples:
    """The samples of a file as arrays: much faster than one object per sample."""

    def __init__(self, width: int) -> None:
        self._width = width
        self.times_s = array("d")
        self.utc_s = array("d")
        self.table = array("d")
        self.programs: tuple[ProgramShare, ...] = ()

    def add(self, lines: Iterable[bytes], path: Path) -> Iterable[str]:
        """Add all valid lines; yield an error message for each of the others."""
        previous_s = -math.inf
        for number, line in enumerate(lines, start=2):
            try:
                sample = parse_json(line, allow_inf_nan=False, cache_strings="keys")
                row = _row(sample["values"], self._width)
                time_s = float(sample["time_s"])
                utc_s = datetime.fromisoformat(sample["utc"]).timestamp()
                programs = _programs(sample["programs"]) if "programs" in sample else ()
            except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
                yield f"{path}:{number}: not a sample of {self._width} values"
                continue
            if not previous_s < time_s < math.inf:
                yield f"{path}:{number}: not later than the sample before it"
                continue
            previous_s = time_s
            self.times_s.append(time_s)
            self.utc_s.append(utc_s)
            self.table.extend(row)
            self.programs = programs or self.programs


def _programs(data: Any) -> tuple[ProgramShare, ...]:
    return tuple(map(ProgramShare.model_validate, data))


def _row(values: Any, width: int) -> array[float]:
    """Return the values of one sample, or raise ``ValueError`` or ``TypeError``."""
    if len(values) != width or math.inf in values or -math.inf in values:  # 1e999 is JSON
        raise ValueError
    try:
        return array("d", values)  # fast, but works only if no reading failed
    except TypeError:
        return array("d", [math.nan if value is None else value for value in values])


def _header(line: bytes, path: Path) -> Header:
    with suppress(FolderError):  # raised again below, with the name of the file
        if len(line) <= _MAX_SHARED_BYTES:
            return _shared_header(line)
    return Header.parse(_object(line, path), path)


@lru_cache(maxsize=32)
def _shared_header(line: bytes) -> Header:
    """Return the header, which is immutable and equal for many files of the same machine."""
    return Header.parse(_object(line, Path()), Path())


def _object(line: bytes, path: Path) -> dict[str, Any]:
    try:
        data = parse_json(line)
    except ValueError as error:
        raise FolderError(f"{path}:1 is not JSON: {error}") from error
    if not isinstance(data, dict):
        raise FolderError(
            f"{path}:1 contains a {type(data).__name__}, expected the header's object"
        )
    return data


def _line(data: dict[str, Any]) -> str:
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.encode(errors="backslashreplace").decode() + "\n"
