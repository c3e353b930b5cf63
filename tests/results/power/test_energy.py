"""Energy against integrals that are known exactly; gaps, edges, resets and counters that wrap."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.telemetry_fakes import series, telemetry
from vflops.record.formats.telemetry import Series
from vflops.results.power.energy import Energy, energy, mean_power_w

POWER = series("gpu0.power")
COUNTER = series("gpu0.energy", "counter")
RAPL = series("package0.energy", "counter", "processor", wraps_at=65_712.0)


def over(
    what: Series,
    points: Sequence[tuple[float, float | None]],
    start_s: float,
    end_s: float,
    interval_s: float = 1.0,
) -> Energy:
    times_s = [time_s for time_s, _ in points]
    values = [value for _, value in points]
    return energy(telemetry({what: values}, times_s, interval_s), what, start_s, end_s)


times = st.lists(st.floats(0.05, 4.9), min_size=2, max_size=40).map(
    lambda steps: [100.0 + sum(steps[:count]) for count in range(len(steps))]
)
shares = st.tuples(st.floats(0, 1), st.floats(0, 1)).filter(lambda two: abs(two[0] - two[1]) > 1e-3)


def spans(times_s: list[float], two: tuple[float, float]) -> tuple[float, float]:
    length_s = times_s[-1] - times_s[0]
    start_s, end_s = sorted(times_s[0] + share * length_s for share in two)
    return start_s, end_s


@given(times, shares, st.floats(-50, 50), st.floats(0, 1000))
def test_a_line_is_integrated_exactly_wherever_the_span_begins(
    times_s: list[float], two: tuple[float, float], slope: float, at_100: float
) -> None:
    start_s, end_s = spans(times_s, two)
    found = over(POWER, [(t, at_100 + slope * (t - 100)) for t in times_s], start_s, end_s)
    middle = at_100 + slope * ((start_s + end_s) / 2 - 100)
    assert found.energy_j == pytest.approx(middle * (end_s - start_s), rel=1e-9, abs=1e-6)
    assert found.mean_power_w == pytest.approx(middle, rel=1e-9, abs=1e-6)
    assert (found.covered, found.gaps) == (1.0, ())


@given(times, shares, st.floats(0, 700))
def test_a_counter_of_constant_power_gives_that_power(
    times_s: list[float], two: tuple[float, float], power_w: float
) -> None:
    start_s, end_s = spans(times_s, two)
    found = over(COUNTER, [(t, 5e6 + power_w * t) for t in times_s], start_s, end_s)
    assert found.energy_j == pytest.approx(power_w * (end_s - start_s), rel=1e-6, abs=1e-5)
    assert found.covered == 1.0


@given(times, st.integers(1, 500))
def test_the_parts_of_a_span_add_up_to_it(times_s: list[float], power_w: int) -> None:
    middle_s = (times_s[0] + times_s[-1]) / 2
    for what, points in (
        (POWER, [(t, power_w * (1 + math.sin(t)) / 2) for t in times_s]),
        (COUNTER, [(t, power_w * (t - math.cos(t)) / 2) for t in times_s]),
    ):
        whole = over(what, points, times_s[0], times_s[-1]).covered_energy_j
        parts = [(times_s[0], middle_s), (middle_s, times_s[-1])]
        sum_j = sum(over(what, points, *part).covered_energy_j for part in parts)
        assert sum_j == pytest.approx(whole, rel=1e-9, abs=1e-9)


@given(st.integers(2, 200))
def test_a_sine_s_area_is_its_integral(samples: int) -> None:
    step_s = math.pi / samples
    points = [(k * step_s, 400 * math.sin(k * step_s)) for k in range(samples + 1)]
    found = over(POWER, points, 0, math.pi, interval_s=step_s)
    # The error of the trapezoid rule: length · step² / 12 · the largest second derivative.
    assert found.energy_j == pytest.approx(800, abs=math.pi * step_s**2 / 12 * 400 + 1e-9)


@given(times, st.floats(1, 1900), st.floats(0, 65_711))
def test_a_counter_that_comes_around_loses_nothing(
    times_s: list[float], power_w: float, first_j: float
) -> None:
    points = [(t, math.fmod(first_j + power_w * (t - times_s[0]), 65_712.0)) for t in times_s]
    found = over(RAPL, points, times_s[0], times_s[-1])
    assert found.energy_j == pytest.approx(power_w * (times_s[-1] - times_s[0]), rel=1e-6, abs=1e-6)
    assert found.covered == 1.0


def test_power_is_not_bridged_over_more_than_five_intervals() -> None:
    points = [(0.0, 100.0), (1.0, 100.0), (6.0, 100.0), (12.0, 100.0), (13.0, 100.0)]
    found = over(POWER, points, 0, 13)
    assert (found.energy_j, found.covered_s) == (700.0, 7.0)
    assert found.mean_power_w == 100.0
    assert found.covered == pytest.approx(7 / 13)
    (gap,) = found.gaps
    assert (gap.start_s, gap.end_s, gap.series) == (6.0, 12.0, "gpu0.power")


def test_readings_that_failed_make_a_gap_only_where_they_are_many() -> None:
    few: list[tuple[float, float | None]] = [(0, 50), (1, None), (2, None), (3, 50)]
    assert over(POWER, few, 0, 3).energy_j == 150
    nulls: list[tuple[float, float | None]] = [(float(t), None) for t in range(1, 9)]
    many = over(POWER, [(0.0, 50.0), *nulls, (9.0, 50.0), (10.0, 50.0)], 0, 10)
    assert (many.energy_j, many.covered) == (50.0, 0.1)


def test_a_counter_bridges_a_gap_within_the_span_but_not_at_its_edge() -> None:
    points = [(0.0, 0.0), (1.0, 100.0), (61.0, 6100.0), (62.0, 6200.0)]
    assert over(COUNTER, points, 0, 62).energy_j == 6200
    edge = over(COUNTER, points, 30, 62)
    assert (edge.energy_j, edge.covered_s) == (100.0, 1.0)
    assert "near the edge" in edge.gaps[0].reason


def test_a_reset_is_a_gap_and_no_negative_energy() -> None:
    points = [(0.0, 900.0), (1.0, 1000.0), (2.0, 10.0), (3.0, 110.0)]
    for what in (COUNTER, series("package0.energy", "counter", wraps_at=262_143.0)):
        found = over(what, points, 0, 3)
        assert (found.energy_j, found.covered_s) == (200.0, 2.0)
        assert [gap.reason for gap in found.gaps] == ["the counter was reset"]


def test_a_counter_that_may_have_come_around_unseen_is_not_trusted() -> None:
    found = over(RAPL, [(0.0, 0.0), (1.0, 100.0), (100.0, 200.0)], 0, 100)
    assert (found.energy_j, found.covered_s) == (100.0, 1.0)
    assert "come around unseen" in found.gaps[0].reason


def test_time_outside_of_the_readings_is_not_covered() -> None:
    found = over(POWER, [(10.0, 100.0), (11.0, 100.0)], 8, 20)
    assert (found.energy_j, found.covered_s) == (100.0, 1.0)
    assert [(gap.start_s, gap.end_s) for gap in found.gaps] == [(8, 10), (11, 20)]


@pytest.mark.parametrize("points", [[], [(1.0, 5.0)], [(90.0, 1.0), (91.0, 1.0)], [(1.0, None)]])
def test_without_readings_in_the_span_there_is_no_energy(
    points: list[tuple[float, float | None]],
) -> None:
    found = over(POWER, points, 0, 10)
    assert (found.energy_j, found.mean_power_w, found.covered) == (None, None, 0.0)
    assert sum(gap.end_s - gap.start_s for gap in found.gaps) == pytest.approx(10)


def test_wrong_questions_are_refused() -> None:
    with pytest.raises(ValueError, match="an end after its start"):
        over(POWER, [(0.0, 1.0), (1.0, 1.0)], 5, 5)
    clock = POWER.model_copy(update={"unit": "MHz"})
    with pytest.raises(ValueError, match="not a counter in J or a gauge in W"):
        over(clock, [(0.0, 1.0), (1.0, 1.0)], 0, 1)


def test_mean_power() -> None:
    recorded = telemetry({POWER: [100.0, 300.0]}, [0.0, 1.0])
    assert mean_power_w(recorded, POWER, 0, 1) == 200
