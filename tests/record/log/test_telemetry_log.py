"""Telemetry files: what is written can be read, and damaged lines are reported and skipped."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.telemetry_fakes import series
from vflops.errors import FolderError
from vflops.record.formats.telemetry import Absent, Header, ProgramShare
from vflops.record.log.telemetry_log import TelemetryWriter, header_line, read, sample_line

HEADER = Header(
    node=3,
    interval_s=0.5,
    series=(series("gpu0.power"), series("gpu0.energy", "counter", wraps_at=9.5)),
    absent=(Absent(what="gpu1", reason="it fell off the bus"),),
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    writer = TelemetryWriter(tmp_path / "jobs/0/0/telemetry.jsonl", HEADER)
    writer.write(10.0, 1.8e9, [100.0, 5])
    writer.write(10.5, 1.8e9 + 0.5, [None, 6])
    writer.write(11.0, 1.8e9 + 1, [float("nan"), 7])
    writer.close()
    return tmp_path / "jobs/0/0/telemetry.jsonl"


def test_what_is_written_is_read(path: Path) -> None:
    recorded = read(path)
    assert recorded.header == HEADER
    assert list(recorded.times_s) == [10.0, 10.5, 11.0]
    assert list(recorded.utc_s) == [1.8e9, 1.8e9 + 0.5, 1.8e9 + 1]
    assert recorded.column("gpu0.power") == [100.0, None, None]
    assert recorded.column("gpu0.energy") == [5.0, 6.0, 7.0]
    assert (len(recorded), recorded.faults, recorded.torn) == (3, (), None)


def test_the_last_programs_are_read(tmp_path: Path) -> None:
    writer = TelemetryWriter(tmp_path / "telemetry.jsonl", HEADER)
    for second, name in enumerate(["cc1plus", "firefox", None]):
        programs = [ProgramShare(name=name, share=0.5)] if name else None
        writer.write(second, 1.8e9 + second, [1.0, 2.0], programs)
    writer.close()
    assert read(tmp_path / "telemetry.jsonl").programs == (ProgramShare(name="firefox", share=0.5),)


def test_lines_are_plain_json_with_the_time_twice(path: Path) -> None:
    header, sample, *_ = map(json.loads, path.read_text().splitlines())
    assert header["schema"] == "vflops.telemetry/1"
    assert sample == {
        "time_s": 10.0,
        "utc": "2027-01-15T08:00:00.000+00:00",
        "values": [100.0, 5],
    }


def test_a_file_is_never_written_over(path: Path) -> None:
    with pytest.raises(FileExistsError):
        TelemetryWriter(path, HEADER)


@pytest.mark.parametrize("keep", [1, 20, 60])
def test_a_torn_last_line_is_skipped_and_reported(path: Path, keep: int) -> None:
    with path.open("a") as file:
        file.write(sample_line(11.5, 1.8e9 + 1.5, [1.0, 8.0])[:keep])
    recorded = read(path)
    assert len(recorded) == 3
    assert recorded.torn == f"{path}:5"


@pytest.mark.parametrize(
    "line",
    [
        "",
        "[]",
        "{}",
        "not json",
        '{"time_s": 12, "utc": "2027-01-15T08:00:02Z", "values": [1]}',
        '{"time_s": 12, "utc": "2027-01-15T08:00:02Z", "values": [1, "2"]}',
        '{"time_s": 12, "utc": "2027-01-15T08:00:02Z", "values": [1, NaN]}',
        '{"time_s": 12, "utc": "2027-01-15T08:00:02Z", "values": [null, 1e999]}',
        '{"time_s": 12, "utc": "yesterday", "values": [1, 2]}',
        '{"time_s": 11, "utc": "2027-01-15T08:00:02Z", "values": [1, 2]}',
        '{"time_s": 1e999, "utc": "2027-01-15T08:00:02Z", "values": [1, 2]}',
    ],
)
def test_a_damaged_line_is_named_and_the_rest_is_read(path: Path, line: str) -> None:
    with path.open("a") as file:
        file.write(line + "\n" + sample_line(13, 1.8e9 + 3, [1.0, 8.0]))
    recorded = read(path)
    assert list(recorded.times_s) == [10.0, 10.5, 11.0, 13.0]
    (fault,) = recorded.faults
    assert fault.startswith(f"{path}:5: not ")


def test_bytes_that_are_not_text_are_a_damaged_line(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"\xff\xfe\n")
    assert read(path).faults == (f"{path}:5: not a sample of 2 values",)


def test_a_file_without_a_header_is_not_telemetry(tmp_path: Path) -> None:
    path = tmp_path / "telemetry.jsonl"
    for content, expected in {
        header_line(HEADER)[:40]: "has no header",
        "17\n": "expected the header's object",
        "{\n": "is not JSON",
        '{"schema": "vflops.run/1"}\n': "is not a vflops.telemetry file",
        '{"schema": "vflops.telemetry/2"}\n': "newer vflops",
        '{"schema": "vflops.telemetry/1"}\n': "does not match its schema",
    }.items():
        path.write_text(content)
        with pytest.raises(FolderError, match=expected):
            read(path)
    with pytest.raises(FolderError, match="cannot read"):
        read(tmp_path / "nothing")


def test_two_series_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match=r"named twice: gpu0\.power"):
        Header(interval_s=1, series=(series("gpu0.power"), series("gpu0.power")))


def test_reading_needs_no_torch_and_no_sensor() -> None:
    code = (
        "import sys, vflops.record.log.telemetry_log, "
        "vflops.results.power.run_power, vflops.record.log.imported_power, "
        "vflops.machine.telemetry.kernels, vflops.machine.telemetry.sampling;"
        "print([name for name in ('torch', 'pynvml', 'numpy') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
