"""Welch's test and Holm's correction, with scipy as the oracle."""

from __future__ import annotations

import importlib
import random
from typing import Any

import pytest

from vflops.metrics.student_t import student_t_outside
from vflops.metrics.welch import holm, welch

scipy_stats: Any = importlib.import_module("scipy.stats")  # it has no types


def drawn(seed: int) -> tuple[list[float], list[float]]:
    draw = random.Random(seed)
    sizes = draw.randint(3, 9), draw.randint(3, 9)
    spread = 10 ** draw.uniform(-3, 3)
    first = [draw.gauss(100, 1) for _ in range(sizes[0])]
    return first, [draw.gauss(100 + draw.choice((0, 3)), spread) for _ in range(sizes[1])]


@pytest.mark.parametrize("seed", range(20))
def test_the_difference_of_two_means_is_that_of_scipy(seed: int) -> None:
    first, second = drawn(seed)
    theirs = scipy_stats.ttest_ind(second, first, equal_var=False)
    span = theirs.confidence_interval(0.95)
    ours = welch(first, second)
    assert ours.p == pytest.approx(theirs.pvalue, rel=1e-9)
    assert (ours.low, ours.high) == pytest.approx((span.low, span.high), rel=1e-9)


def test_figures_of_any_size_have_a_difference() -> None:
    first, second = drawn(1)
    for scale in (1e-200, 1e150):
        small = welch([scale * each for each in first], [scale * each for each in second])
        assert small.p == pytest.approx(welch(first, second).p)


def test_repeats_that_do_not_spread_tell_nothing() -> None:
    with pytest.raises(ValueError, match="all repeats of both sets are equal"):
        welch([1.0, 1.0, 1.0], [2.0, 2.0, 2.0])


@pytest.mark.parametrize(
    ("t", "degrees"), [(0.0, 3), (0.3, 1), (-2.5, 4.7), (40.0, 11), (9.0, 1e3)]
)
def test_the_tails_of_t_are_those_of_scipy(t: float, degrees: float) -> None:
    theirs = 2 * scipy_stats.t.sf(abs(t), degrees)
    assert student_t_outside(t, degrees_of_freedom=degrees) == pytest.approx(theirs, rel=1e-9)


def test_holm_divides_by_the_tests_that_are_left() -> None:
    # Of four: 0.05 / 4, then / 3, then / 2: the third breaks off, so the fourth is not looked at.
    assert holm([0.016, 0.03, 0.04, 0.012]) == [True, False, False, True]
    assert holm([0.013, 0.001]) == [True, True]
    assert holm([0.026, 0.03]) == [False, False]
    assert holm([]) == []


def test_many_tests_without_a_difference_name_any_rarely() -> None:
    draw = random.Random(3)
    named = 0
    for _ in range(150):
        tests = [[[draw.gauss(100, 1) for _ in range(4)] for _ in "ab"] for _ in range(5)]
        named += any(holm([welch(a, b).p for a, b in tests]))
    assert named / 150 < 0.09  # 0.05, and what chance does in 150
