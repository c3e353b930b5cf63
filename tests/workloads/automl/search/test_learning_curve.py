"""Predicted accuracies: the curve where there is one, caution where there is not."""

from __future__ import annotations

from math import log2, sqrt

import numpy as np
import pytest

from vflops.workloads.automl.search.learning_curve import predict


@pytest.mark.parametrize(("a", "b", "c"), [(0.1, 0.0, 0.2), (0.08, 4.0, 0.1), (0.15, 16.0, -0.4)])
def test_a_curve_of_the_form_is_found_again(a: float, b: float, c: float) -> None:
    curve = [(epoch, a * log2(epoch + b) + c) for epoch in range(1, 16)]
    found = predict(curve, 60)
    assert (found.a, found.b, found.c) == pytest.approx((a, b, c), abs=1e-6)
    assert found.rmse == pytest.approx(0, abs=1e-9)
    assert found.value == pytest.approx(a * log2(60 + b) + c)
    assert found.error(found.value - 0.1) == pytest.approx(0.1)
    assert (found.epoch, found.points) == (60, 15)


def test_an_offset_between_those_tried_costs_little() -> None:
    curve = [(epoch, 0.12 * log2(epoch + 5) + 0.05) for epoch in range(1, 16)]
    assert abs(predict(curve, 60).error(0.12 * log2(65) + 0.05)) < 0.01


def test_noise_is_taken_off_twice() -> None:
    generator = np.random.default_rng(1)
    noise = generator.normal(0, 0.02, 30)
    curve = [(e, 0.1 * log2(e) + 0.2 + float(noise[e - 1])) for e in range(1, 31)]
    found = predict(curve, 60)
    assert found.rmse == pytest.approx(0.02, rel=0.4)
    at = found.a * log2(60 + found.b) + found.c
    assert found.value == pytest.approx(at - 2 * (found.rmse or 0))
    errors = [found.a * log2(e + found.b) + found.c - accuracy for e, accuracy in curve]
    assert found.rmse == pytest.approx(sqrt(sum(error**2 for error in errors) / 30))


@pytest.mark.parametrize("curve", [[(1, 0.3)], [(1, 0.3), (2, 0.1)], [(1, 0.1), (2, 0.3)]])
def test_one_or_two_points_promise_no_growth(curve: list[tuple[int, float]]) -> None:
    found = predict(curve, 60)
    assert found.value == 0.3
    assert found.rmse is None


def test_three_points_give_a_straight_line_in_the_logarithm_and_its_error() -> None:
    exact = predict([(1, 0.2), (2, 0.3), (4, 0.4)], 16)
    assert (exact.value, exact.b) == pytest.approx((0.6, 0))
    bent = predict([(1, 0.2), (2, 0.35), (4, 0.4)], 16)
    assert bent.b == 0
    assert bent.rmse == pytest.approx(0.05 / 3 * sqrt(2))
    assert bent.value == pytest.approx(0.35 - 0.1 / 3 + 0.3 - 2 * 0.05 / 3 * sqrt(2))


def test_a_falling_curve_is_flat() -> None:
    found = predict([(1, 0.5), (2, 0.4), (3, 0.3), (4, 0.4)], 60)
    assert found.a == 0
    assert found.value == pytest.approx(0.4 - 2 * sqrt(0.02 / 4))


def test_one_epoch_measured_thrice_is_flat() -> None:
    assert predict([(2, 0.4), (2, 0.4), (2, 0.4)], 60).value == pytest.approx(0.4)


def test_an_accuracy_stays_within_0_and_1() -> None:
    assert predict([(e, 0.3 * log2(e)) for e in range(1, 9)], 60).value == 1
    wild = [(1, 0.0), (2, 0.9), (3, 0.0), (4, 0.0), (5, 0.1)]
    assert predict(wild, 6).value == 0


@pytest.mark.parametrize("curve", [[], [(0, 0.3)], [(1, float("nan"))]])
def test_what_is_no_curve_is_refused(curve: list[tuple[int, float]]) -> None:
    with pytest.raises(ValueError, match="expected"):
        predict(curve, 60)
