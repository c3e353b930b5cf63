"""The sampler: a sample at both ends, no drift, and errors that never reach the run."""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from vflops.machine.telemetry import sampling
from vflops.machine.telemetry.sampling import Sampler
from vflops.machine.telemetry.sensor import Channel, Channels
from vflops.record.formats.telemetry import Absent, Series
from vflops.record.log.telemetry_log import read

SERIES = Series(id="a.b", title="a", unit="W", source="test", kind="gauge", part="node")


class Whole:
    """A sensor that always fails."""

    absent: tuple[Absent, ...] = ()

    def series(self) -> list[Series]:
        return [SERIES.model_copy(update={"id": "bad.sensor"})]

    def read(self) -> list[float | None]:
        raise RuntimeError("broken")


def test_there_is_a_sample_at_both_ends(tmp_path: Path) -> None:
    before_s = time.monotonic()
    with Sampler(tmp_path / "telemetry.jsonl", tmp_path, interval_s=60, node=2) as sampler:
        started_s = time.monotonic()
        assert len(read(tmp_path / "telemetry.jsonl")) == 1
        ended_s = time.monotonic()
    recorded = read(tmp_path / "telemetry.jsonl")
    first_s, last_s = recorded.times_s
    assert before_s <= first_s <= started_s <= ended_s <= last_s <= time.monotonic()
    assert sampler.fault is None
    assert (recorded.header.node, recorded.header.interval_s, recorded.faults) == (2, 60, ())
    assert recorded.utc_offset_s == pytest.approx(time.time() - time.monotonic(), abs=0.1)


def test_samples_are_on_a_grid_that_lateness_does_not_shift(tmp_path: Path) -> None:
    with Sampler(tmp_path / "telemetry.jsonl", tmp_path, interval_s=0.05):
        time.sleep(0.5)
    times_s = read(tmp_path / "telemetry.jsonl").times_s
    assert 4 <= len(times_s) <= 12  # a busy machine may skip some, none comes twice


@pytest.mark.parametrize(
    ("elapsed_s", "wait_s"), [(0.0, 1.0), (0.3, 0.7), (2.5, 0.5), (7.999999, 1.000001), (7.8, 0.2)]
)
def test_the_wait_ends_at_a_whole_interval(elapsed_s: float, wait_s: float) -> None:
    assert sampling._delay_s(100.0, 100.0 + elapsed_s, 1.0) == pytest.approx(wait_s)


def test_a_sensor_that_fails_is_null_or_absent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(**_: object) -> Channels:
        raise RuntimeError("no such bus")

    monkeypatch.setattr(sampling, "nvidia_sensor", broken)
    monkeypatch.setattr(sampling, "rapl_sensor", lambda root: Whole())
    monkeypatch.setattr(
        sampling, "network_sensor", lambda root: Channels([Channel(SERIES, lambda: 7.0)])
    )
    with Sampler(tmp_path / "telemetry.jsonl", tmp_path) as sampler:
        pass
    recorded = read(tmp_path / "telemetry.jsonl")
    assert sampler.fault is None
    assert recorded.column("bad.sensor") == [None, None]
    assert recorded.column("a.b") == [7.0, 7.0]
    absent = {missing.what: missing.reason for missing in recorded.header.absent}
    assert absent["NVIDIA accelerators"] == "RuntimeError: no such bus"


def test_a_folder_that_cannot_be_written_is_a_fault_and_not_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with Sampler(tmp_path / "file/telemetry.jsonl", tmp_path) as sampler:
        pass
    assert "cannot write" in str(sampler.fault)


def test_a_file_that_is_there_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "telemetry.jsonl").write_text("precious")
    with Sampler(tmp_path / "telemetry.jsonl", tmp_path) as sampler:
        pass
    assert "File exists" in str(sampler.fault)
    assert (tmp_path / "telemetry.jsonl").read_text() == "precious"


def test_a_full_disk_ends_sampling_and_what_fitted_is_read(
    small_disk: Path, tmp_path: Path
) -> None:
    path = small_disk / "telemetry.jsonl"
    with Sampler(path, tmp_path, interval_s=0.01) as sampler:
        with (small_disk / "ballast").open("wb", buffering=0) as ballast, suppress(OSError):
            while ballast.write(b"x" * 4096):
                pass
        deadline_s = time.monotonic() + 10
        while sampler.fault is None and time.monotonic() < deadline_s:
            time.sleep(0.01)
    assert "No space left on device" in str(sampler.fault)
    assert len(read(path)) >= 1


def test_a_sensor_that_hangs_does_not_delay_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sampling, "_SENSOR_TIMEOUT_S", 0.1)
    answers = threading.Event()
    monkeypatch.setattr(sampling, "nvidia_sensor", lambda **_: answers.wait(60))
    started_s = time.monotonic()
    with Sampler(tmp_path / "telemetry.jsonl", tmp_path) as sampler:
        pass
    assert time.monotonic() - started_s < 30
    answers.set()
    assert "did not answer" in str(sampler.fault)


def test_no_host_name_is_written(tmp_path: Path) -> None:
    with Sampler(tmp_path / "telemetry.jsonl", tmp_path):
        pass
    name = os.uname().nodename
    if len(name) < 5:
        pytest.skip(f"a host named {name!r} may be part of another word")
    assert name not in (tmp_path / "telemetry.jsonl").read_text()


def test_a_machine_out_of_threads_is_a_fault_and_not_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(_: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refused)
    with Sampler(tmp_path / "telemetry.jsonl", tmp_path) as sampler:
        pass
    assert sampler.fault == "telemetry cannot start: can't start new thread"


def test_an_interval_of_zero_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="interval_s is 0"):
        Sampler(tmp_path / "telemetry.jsonl", tmp_path, interval_s=0)
