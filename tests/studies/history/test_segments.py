"""Changes of level: few where there are none, soon where there is one."""

from __future__ import annotations

import numpy as np
import pytest

from vflops.studies.history.run_history import CHANCE, MIN_CHANGE
from vflops.studies.history.segments import MAX_RUNS, change_points

NOISE = 1.0
"""Per cent of the level."""


def noise(seed: int, *sizes: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    return np.random.default_rng(seed).normal(0.0, NOISE, sizes)


@pytest.mark.parametrize("runs", [6, 12, 40])
def test_a_series_without_a_change_is_rarely_given_one(runs: int) -> None:
    series = 100 + noise(1, 400, runs)
    alarms = sum(bool(change_points(each.tolist(), chance=0.05)) for each in series)
    assert alarms / 400 < 0.08  # 0.05, and what chance does in 400


def test_a_year_of_looks_at_noise_raises_hardly_an_alarm() -> None:
    """A series is looked at anew after every run: the chance is that of any of 55 looks."""
    alarms = 0
    for each in 100 + noise(2, 40, 60):
        looks = (each[:seen].tolist() for seen in range(6, 61))
        found = (change_points(look, chance=CHANCE, least_change=MIN_CHANGE) for look in looks)
        alarms += any(found)
    assert alarms <= 1


@pytest.mark.parametrize(("before", "after", "least"), [(10, 3, 0.9), (10, 5, 0.97), (30, 3, 0.95)])
def test_a_step_of_five_times_the_noise_is_found_within_few_runs(
    before: int, after: int, least: float
) -> None:
    series = 100 + noise(3, 200, before + after)
    series[:, before:] -= 5
    points = [change_points(e.tolist(), chance=CHANCE, least_change=MIN_CHANGE) for e in series]
    assert sum(before in each for each in points) / 200 >= least - 0.05
    near = sum(any(abs(point - before) <= 1 for point in each) for each in points)
    assert near / 200 >= least


def test_a_level_that_came_and_went_is_found() -> None:
    series = 100 + noise(4, 30)
    series[10:20] -= 5
    assert change_points(series.tolist(), chance=CHANCE) == [10, 20]


@pytest.mark.parametrize("at", [0, 9, 19])
def test_one_slow_run_is_no_change(at: int) -> None:
    for slow in (95, 80, 10):
        series = 100 + noise(5, 20)
        series[at] = slow
        assert change_points(series.tolist(), chance=CHANCE) == []


def test_a_change_that_does_not_matter_is_none() -> None:
    series = 100 + noise(6, 40) / 10
    series[20:] -= 1
    assert change_points(series.tolist(), chance=CHANCE) == [20]
    assert change_points(series.tolist(), chance=CHANCE, least_change=0.02) == []


def test_series_too_short_or_without_spread_have_none() -> None:
    assert change_points([], chance=0.01) == []
    assert change_points([1.0, 1.0, 1.0, 9.0, 9.0], chance=0.01) == []
    assert change_points([5.0] * 30, chance=0.01) == []
    assert change_points([5.0] * 3 + [4.0] * 3, chance=0.01) == [3]


def test_of_a_long_series_the_newest_runs_are_looked_at() -> None:
    series = 100 + noise(7, MAX_RUNS + 100)
    series[:50] -= 20
    series[-10:] -= 5
    assert change_points(series.tolist(), chance=CHANCE) == [MAX_RUNS + 90]
