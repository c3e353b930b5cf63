"""The t quantile against a printed table and closed forms; scipy: test_metrics_scipy.py."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vflops.metrics import student_t_quantile

TABLE = {  # two-sided 95 % and 99 %, as every statistics book prints them
    1: (12.706, 63.657),
    2: (4.303, 9.925),
    3: (3.182, 5.841),
    4: (2.776, 4.604),
    5: (2.571, 4.032),
    9: (2.262, 3.250),
    10: (2.228, 3.169),
    29: (2.045, 2.756),
    120: (1.980, 2.617),
}


@pytest.mark.parametrize("degrees", TABLE)
def test_the_printed_table(degrees: int) -> None:
    at_95 = student_t_quantile(0.975, degrees_of_freedom=degrees)
    at_99 = student_t_quantile(0.995, degrees_of_freedom=degrees)
    assert (round(at_95, 3), round(at_99, 3)) == TABLE[degrees]


@settings(deadline=None)
@given(st.floats(1e-15, 0.4999) | st.sampled_from([1e-99, 0.5 - 1e-9, 0.5 - 2**-53]))
def test_one_and_two_degrees_of_freedom_have_closed_forms(probability: float) -> None:
    # Near the median too, where scipy's own digits run out.
    cauchy = -1 / math.tan(math.pi * probability)
    if probability > 0.25:
        cauchy = math.tan(math.pi * (probability - 0.5))
    two = (2 * probability - 1) * math.sqrt(0.5 / (probability * (1 - probability)))
    for degrees, expected in ((1, cauchy), (2, two)):
        found = student_t_quantile(probability, degrees_of_freedom=degrees)
        assert found == pytest.approx(expected, rel=1e-12, abs=0)


@settings(deadline=None)
@given(st.floats(0.001, 0.999), st.floats(1, 1000))
def test_the_distribution_is_symmetric(probability: float, degrees: float) -> None:
    upper = student_t_quantile(probability, degrees_of_freedom=degrees)
    lower = student_t_quantile(1 - probability, degrees_of_freedom=degrees)
    assert upper == pytest.approx(-lower, rel=1e-9, abs=1e-12)


def test_the_median_is_zero() -> None:
    assert student_t_quantile(0.5, degrees_of_freedom=3) == 0


def test_many_degrees_of_freedom_approach_the_normal_distribution() -> None:
    found = student_t_quantile(0.975, degrees_of_freedom=1e8)
    assert found == pytest.approx(1.959963984540054, rel=1e-6)


@pytest.mark.parametrize("probability", [0.0, 1.0, -0.1, 1.1, 1e-101, float("nan")])
def test_a_probability_lies_between_0_and_1(probability: float) -> None:
    expected = f"^probability is {probability!r}: expected more than 1e-100 and less than 1$"
    with pytest.raises(ValueError, match=expected):
        student_t_quantile(probability, degrees_of_freedom=3)


@pytest.mark.parametrize("degrees", [0, 0.5, -1, float("nan"), float("inf")])
def test_there_is_at_least_one_degree_of_freedom(degrees: float) -> None:
    expected = f"^degrees_of_freedom is {degrees!r}: expected a finite number of 1 or more$"
    with pytest.raises(ValueError, match=expected):
        student_t_quantile(0.9, degrees_of_freedom=degrees)
