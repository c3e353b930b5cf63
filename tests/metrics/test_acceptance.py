"""Decisions about a threshold: by hand with a table of t, and with scipy as the oracle."""

from __future__ import annotations

import importlib
import math
from typing import Any

import pytest

from vflops.metrics.acceptance import decide, one_sided_bounds, repeats_needed
from vflops.metrics.statistics import ConfidenceInterval

scipy_stats: Any = importlib.import_module("scipy.stats")  # it has no types
SPEEDS = (98.0, 100.0, 102.0)
"""Mean 100, standard deviation 2."""
T_95 = {1: 6.313752, 2: 2.919986, 3: 2.353363, 4: 2.131847, 5: 2.015048}
"""One-sided 95 % points of Student's t by degrees of freedom, from a printed table."""


def test_the_bounds_are_those_of_a_table_of_t() -> None:
    bounds = one_sided_bounds(SPEEDS, confidence=0.95)
    reach = T_95[2] * 2 / math.sqrt(3)  # 3.3717
    assert (bounds.low, bounds.high) == pytest.approx((100 - reach, 100 + reach), rel=1e-6)


@pytest.mark.parametrize(
    ("threshold", "better", "decision"),
    [
        (96.6, "higher", "accepted"),  # the lower bound is 96.628
        (96.7, "higher", "undecided"),
        (103.3, "higher", "undecided"),  # the upper bound is 103.372
        (103.4, "higher", "rejected"),
        (103.4, "lower", "accepted"),
        (103.3, "lower", "undecided"),
        (96.7, "lower", "undecided"),
        (96.6, "lower", "rejected"),
    ],
)
def test_a_bound_decides_only_beyond_the_threshold(
    threshold: float, better: Any, decision: str
) -> None:
    bounds = one_sided_bounds(SPEEDS, confidence=0.95)
    assert decide(bounds, threshold=threshold, better=better) == decision


@pytest.mark.parametrize("alternative", ["greater", "less"])
def test_a_bound_is_where_the_t_test_of_scipy_changes_its_mind(alternative: str) -> None:
    values = [3.1, 2.7, 3.3, 2.9]
    bounds = one_sided_bounds(values, confidence=0.9)
    edge = bounds.low if alternative == "greater" else bounds.high
    assert scipy_stats.ttest_1samp(values, edge, alternative=alternative).pvalue == pytest.approx(
        0.1
    )


def test_equal_values_decide_at_the_threshold_itself() -> None:
    bounds = ConfidenceInterval(5.0, 5.0, 0.9)
    assert decide(bounds, threshold=5.0, better="higher") == "accepted"
    assert decide(bounds, threshold=5.0, better="lower") == "accepted"
    assert decide(bounds, threshold=5.01, better="higher") == "rejected"


def test_the_needed_repeats_are_the_first_that_decide() -> None:
    # By hand, with spread 2: t·2/√n is 3.372 for n = 3, 2.353 for 4, 1.907 for 5, 1.645 for 6.
    for margin, repeats in ((3.4, 3), (3.3, 4), (2.4, 4), (2.3, 5), (1.7, 6)):
        needed = repeats_needed(SPEEDS, threshold=100 - margin, confidence=0.95)
        assert needed == repeats, margin
        assert needed == repeats_needed(SPEEDS, threshold=100 + margin, confidence=0.95)


def test_a_mean_at_its_threshold_is_never_decided() -> None:
    assert repeats_needed(SPEEDS, threshold=100.0, confidence=0.95) is None
    assert repeats_needed(SPEEDS, threshold=100.001, confidence=0.95) is None


@pytest.mark.parametrize("confidence", [0.5, 1.0, 0.0])
def test_a_confidence_outside_its_range_is_refused(confidence: float) -> None:
    with pytest.raises(ValueError, match="confidence"):
        one_sided_bounds(SPEEDS, confidence=confidence)
