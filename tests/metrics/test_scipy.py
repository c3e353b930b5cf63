"""scipy as the oracle; it comes with mlperf-logging and is no dependency of the package."""

from __future__ import annotations

import importlib
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from vflops.metrics import (
    coefficient_of_variation,
    confidence_interval,
    mean,
    stdev,
    student_t_quantile,
)

scipy_stats: Any = importlib.import_module("scipy.stats")  # it has no types

# Not next to 0.5: there scipy's digits run out (0 at 0.5 + 1e-9 with 4 degrees of freedom).
PROBABILITIES = (1e-99, 1e-12, 1e-6, 0.001, 0.025, 0.2, 0.3, 0.45, 0.6, 0.9, 0.975, 0.9995)


@pytest.mark.parametrize(
    ("degrees", "digits"),
    [(1, 11), (1.7, 11), (2, 11), (3, 11), (4, 11), (9, 11), (29.5, 11), (1e3, 11), (1e6, 8)],
)
def test_the_t_quantile_has_the_digits_promised(degrees: float, digits: int) -> None:
    for probability in PROBABILITIES:
        expected = float(scipy_stats.t.ppf(probability, degrees))
        found = student_t_quantile(probability, degrees_of_freedom=degrees)
        assert found == pytest.approx(expected, rel=10.0**-digits), probability


@settings(deadline=None)
@given(st.lists(st.floats(0.1, 1000), min_size=2, max_size=20), st.floats(0.01, 0.999))
def test_run_to_run_statistics_agree(samples: list[float], level: float) -> None:
    assume(max(samples) > min(samples) * 1.01)
    assert mean(samples) == pytest.approx(float(scipy_stats.tmean(samples)))
    assert stdev(samples) == pytest.approx(float(scipy_stats.tstd(samples)))
    variation = float(scipy_stats.variation(samples, ddof=1))
    assert coefficient_of_variation(samples) == pytest.approx(variation)
    low, high = scipy_stats.t.interval(
        level, len(samples) - 1, loc=mean(samples), scale=scipy_stats.sem(samples)
    )
    interval = confidence_interval(samples, level=level)
    assert interval.low == pytest.approx(float(low), rel=1e-9, abs=1e-9)
    assert interval.high == pytest.approx(float(high), rel=1e-9, abs=1e-9)
