from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.micro_tasks import FakeClock
from vflops.config.settings import MicroSettings
from vflops.errors import UsageError
from vflops.machine.ceilings import measure as run
from vflops.machine.ceilings.ceiling_plan import Item
from vflops.machine.ceilings.measure import measure, planned_items
from vflops.machine.ceilings.task import Task
from vflops.record.formats.measurement import Measurement, Trial
from vflops.run.pipeline import _may_be_measured

QUICK = MicroSettings(
    budget_s=4, benchmarks=("gemm", "convolution", "memory", "transfer", "storage"), device="cpu"
)


def test_every_planned_item_yields_one_measurement_in_order(tmp_path: Path) -> None:
    started: list[Item] = []
    trials: list[tuple[Item, Trial]] = []
    measurements = list(
        measure(
            QUICK,
            seed=1,
            folder=tmp_path,
            on_start=started.append,
            on_trial=lambda item, trial: trials.append((item, trial)),
        )
    )
    items = planned_items(QUICK)
    assert [measurement.key for measurement in measurements] == [item.key for item in items]
    assert started == list(items)
    assert {item for item, _ in trials} <= set(items)
    for measurement in measurements:
        assert (measurement.value is None) != (measurement.reason is None)
        assert Measurement.model_validate_json(measurement.model_dump_json()) == measurement
    values = {measurement.key for measurement in measurements if measurement.value is not None}
    assert ("gemm", "peak", "fp32") in values
    assert ("convolution", "forward", "fp32") in values
    reasons = {measurement.key: measurement.reason for measurement in measurements}
    assert "nothing to copy to" in (reasons["transfer", "host-to-device-pinned", None] or "")
    assert "fp8 convolution" in (reasons["convolution", "forward", "fp8"] or "")


def test_what_was_done_before_is_skipped(tmp_path: Path) -> None:
    settings = MicroSettings(budget_s=0.4, benchmarks=("gemm",), device="cpu")
    keys = [item.key for item in planned_items(settings)]
    measurements = list(measure(settings, seed=1, folder=tmp_path, done=keys[:4]))
    assert [measurement.key for measurement in measurements] == keys[4:]
    assert list(measure(settings, seed=1, folder=tmp_path, done=keys)) == []


def test_time_that_an_item_leaves_goes_to_the_later_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = FakeClock(step_s=0.0)
    shares: list[float] = []

    def uses_half(task: Task) -> Measurement:
        shares.append(task.deadline.left_s())
        clock.now_s += shares[-1] / 2
        return task.measurement([1.0])

    for benchmark in ("memory", "storage"):
        monkeypatch.setitem(run._MEASURE, benchmark, uses_half)
    settings = MicroSettings(budget_s=10, benchmarks=("memory", "transfer", "storage"))
    settings = settings.model_copy(update={"device": "cpu"})
    measurements = list(measure(settings, seed=1, folder=tmp_path, clock=clock))
    assert len(measurements) == len(planned_items(settings))
    # five items of the same weight; copies to the CPU take no time, arrays 0.2 s to be filled
    assert shares[0] == pytest.approx(0.2 + (10 - 0.4) / 5)
    assert shares[1] == pytest.approx(0.2 + (10 - shares[0] / 2 - 0.2) / 4)
    assert shares[-1] == pytest.approx(10 - sum(shares[:-1]) / 2)
    assert clock.now_s < settings.budget_s


def test_a_budget_that_is_used_up_is_the_reason(tmp_path: Path) -> None:
    clock = FakeClock(step_s=50.0)
    settings = MicroSettings(budget_s=20, device="cpu")
    measurements = {
        measurement.key: measurement
        for measurement in measure(settings, seed=1, folder=tmp_path, clock=clock)
    }
    assert len(measurements) == len(planned_items(settings))
    late = "time budget of 20 s used up; raise micro.budget_s"
    assert measurements["gemm", "peak", "fp32"].reason == late
    assert {item.reason == late for item in measurements.values() if item.ran_out_of_time} == {True}
    assert not measurements["transfer", "device-to-host-pinned", None].ran_out_of_time
    assert measurements["memory", "copy", None].reason == late
    assert measurements["storage", "sequential-read", None].reason == late
    assert measurements["all-reduce", "gloo-2-ranks", None].reason == late
    assert "nothing to copy to" in (
        measurements["transfer", "device-to-host-pinned", None].reason or ""
    )


def test_only_what_ran_out_of_time_is_measured_when_a_run_is_resumed(tmp_path: Path) -> None:
    item = planned_items(MicroSettings(device="cpu"))[0]
    late = item.absent_measurement("cpu", "it is late", ran_out_of_time=True)
    absent = item.absent_measurement("cpu", "a fault that mentions the time budget")
    assert _may_be_measured(None) and _may_be_measured(late)
    assert not _may_be_measured(absent) and not _may_be_measured(item.measurement("cpu", [1.0]))


def test_an_item_that_fails_does_not_stop_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(task: object) -> Measurement:
        raise RuntimeError("CUDA error: device-side assert triggered\nand advice")

    monkeypatch.setitem(run._MEASURE, "memory", fail)
    settings = MicroSettings(budget_s=1.5, benchmarks=("memory", "storage"), device="cpu")
    measurements = list(measure(settings, seed=1, folder=tmp_path))
    assert [measurement.reason for measurement in measurements[:2]] == [
        "it failed: CUDA error: device-side assert triggered"
    ] * 2
    assert all(measurement.value is not None for measurement in measurements[2:])


def test_a_device_that_does_not_exist_is_an_error_before_anything_runs(tmp_path: Path) -> None:
    settings = MicroSettings(device="gpux")
    with pytest.raises(UsageError, match="unknown device 'gpux'"):
        measure(settings, seed=1, folder=tmp_path)
    with pytest.raises(UsageError, match="unknown device 'gpux'"):
        planned_items(settings)
