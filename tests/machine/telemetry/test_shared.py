"""Sensors that several jobs of one machine read."""

from __future__ import annotations

import sys

import pytest

from tests.support.telemetry_fakes import FakeNvml, series, telemetry
from vflops.machine.telemetry.nvidia_sensor import nvidia_sensor
from vflops.record.formats.telemetry import Series, Telemetry
from vflops.results.power.energy import integrate_gauge, join_energy
from vflops.results.power.run_power import host_power

POWER = series("gpu0.power")
ENERGY = series("package0.energy", "counter", "processor")


def constant(first_s: int, last_s: int, of: Series = POWER, value: float = 100.0) -> Telemetry:
    times_s = [float(second) for second in range(first_s, last_s + 1)]
    readings = [value * t if of.kind == "counter" else value for t in times_s]
    return telemetry({of: readings}, times_s)


@pytest.mark.parametrize("of", [POWER, ENERGY])
@pytest.mark.parametrize(
    ("spans", "covered_s"),
    [
        ([(0, 10), (0, 10)], 10),
        ([(0, 6), (4, 10)], 10),
        ([(4, 10), (0, 6)], 10),
        ([(0, 2), (2, 3), (8, 10)], 5),
        ([(3, 5), (0, 10)], 10),
    ],
)
def test_every_moment_counts_once(
    of: Series, spans: list[tuple[int, int]], covered_s: float
) -> None:
    summary = join_energy([(constant(a, b, of), of) for a, b in spans], 0.0, 10.0)
    assert summary.covered_s == pytest.approx(covered_s)
    assert summary.covered_energy_j == pytest.approx(100.0 * covered_s)
    assert summary.covered == pytest.approx(covered_s / 10)
    assert sum(gap.end_s - gap.start_s for gap in summary.gaps) == pytest.approx(10 - covered_s)


def test_a_gauge_of_any_unit_has_a_mean() -> None:
    busy = POWER.model_copy(update={"id": "gpu0.utilisation", "unit": "%"})
    one, other = constant(0, 5, busy, 100.0), constant(5, 10, busy, 50.0)
    assert join_energy(
        [(one, busy), (other, busy)], 0, 10, integrate_gauge
    ).mean_power_w == pytest.approx(75.0)


def test_a_device_is_told_from_another_of_the_same_number() -> None:
    a, b = (POWER.model_copy(update={"device": name}) for name in "ab")
    apart = host_power([constant(0, 10, a), constant(0, 10, b)], 0, 10)
    assert apart.power_w == pytest.approx(200.0)
    same = host_power([constant(0, 10, a), constant(0, 10, a)], 0, 10)
    assert same.power_w == pytest.approx(100.0)


def test_a_gpu_is_the_same_for_every_job_and_its_uuid_is_not_recorded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Known(FakeNvml):
        def nvmlDeviceGetUUID(self, gpu: int) -> str:  # noqa: N802
            return self.uuids[gpu]

    monkeypatch.setitem(sys.modules, "pynvml", Known())
    both = {item.id: item.device for item in nvidia_sensor([0, 1]).series()}
    second = {item.id: item.device for item in nvidia_sensor(["GPU-bbbb"]).series()}
    assert both["gpu0.power"] != both["gpu1.power"] == second["gpu0.power"]
    assert "bbbb" not in str(second["gpu0.power"])


def test_an_nvml_without_uuids_leaves_the_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml())
    assert {item.device for item in nvidia_sensor().series()} == {None}
