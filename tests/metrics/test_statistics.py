"""Run-to-run statistics, by hand and as properties."""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Sequence

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from vflops.metrics import (
    coefficient_of_variation,
    confidence_interval,
    mean,
    olympic_mean,
    relative_range,
    stdev,
)

figures = st.floats(1e-3, 1e12)
runs = st.lists(figures, min_size=2, max_size=20)
three_runs = st.lists(figures, min_size=3, max_size=20)
levels = st.floats(0.01, 0.999)


def test_by_hand() -> None:
    samples = [2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]  # squared deviations add up to 32
    assert mean(samples) == 5
    assert stdev(samples) == pytest.approx((32 / 7) ** 0.5)
    assert coefficient_of_variation(samples) == pytest.approx((32 / 7) ** 0.5 / 5)
    assert olympic_mean(samples) == pytest.approx(29 / 6)
    assert relative_range(samples) == 7 / 5


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_the_mean_of_one_sample_is_the_exact_one(sample: float) -> None:
    assert repr(mean([sample])) == repr(float(statistics.mean([sample])))


def test_the_interval_by_hand() -> None:
    # n = 5, mean 3, stdev √2.5, t(0.975, 4) = 2.776445: half-width 2.776445 · √0.5 = 1.963243
    interval = confidence_interval([1, 2, 3, 4, 5])
    assert interval.level == 0.95
    assert interval.low == pytest.approx(3 - 1.963243, abs=1e-6)
    assert interval.high == pytest.approx(3 + 1.963243, abs=1e-6)


def test_the_olympic_mean_drops_one_best_and_one_worst_only() -> None:
    assert olympic_mean([100.0, 1.0, 4.0, 6.0]) == 5
    assert olympic_mean([1.0, 1.0, 1.0, 9.0, 9.0]) == pytest.approx(11 / 3)  # ties: one of each
    assert olympic_mean([7.0, 9.0, 8.0]) == 8


@given(runs)
def test_the_mean_lies_within_the_samples(samples: list[float]) -> None:
    assert min(samples) <= mean(samples) <= max(samples)


@given(three_runs)
def test_the_olympic_mean_lies_within_the_samples(samples: list[float]) -> None:
    assert min(samples) <= olympic_mean(samples) <= max(samples)


@settings(deadline=None)
@given(three_runs, st.randoms(use_true_random=False))
def test_the_order_of_the_runs_changes_no_digit(samples: list[float], rng: random.Random) -> None:
    shuffled = rng.sample(samples, len(samples))
    for statistic in (mean, stdev, coefficient_of_variation, olympic_mean, confidence_interval):
        assert statistic(shuffled) == statistic(samples)


@given(three_runs, st.floats(1, 1e6))
def test_the_olympic_mean_does_not_see_how_far_out_the_extremes_are(
    samples: list[float], further: float
) -> None:
    ranked = sorted(samples)
    stretched = [ranked[0] / (1 + further), *ranked[1:-1], ranked[-1] * (1 + further)]
    assert olympic_mean(stretched) == olympic_mean(samples)


@settings(deadline=None)
@given(figures, st.integers(3, 50))
def test_equal_runs_have_exactly_no_spread(figure: float, count: int) -> None:
    samples = [figure] * count
    assert mean(samples) == olympic_mean(samples) == figure
    assert stdev(samples) == coefficient_of_variation(samples) == 0
    interval = confidence_interval(samples)
    assert interval.low == interval.high == figure


@given(runs, st.floats(0.01, 100))
def test_the_coefficient_of_variation_has_no_unit(samples: list[float], unit: float) -> None:
    scaled = [unit * sample for sample in samples]
    here = coefficient_of_variation(samples)
    assert coefficient_of_variation(scaled) == pytest.approx(here, rel=1e-6, abs=1e-12)


@given(runs, st.floats(0, 1e6))
def test_a_shift_moves_the_mean_and_not_the_spread(samples: list[float], shift: float) -> None:
    moved = [sample + shift for sample in samples]
    scale = max(moved)
    assert mean(moved) == pytest.approx(mean(samples) + shift)
    assert stdev(moved) == pytest.approx(stdev(samples), rel=1e-9, abs=1e-12 * scale)


@settings(deadline=None)
@given(runs, levels)
def test_the_interval_is_centred_on_the_mean(samples: list[float], level: float) -> None:
    interval = confidence_interval(samples, level=level)
    assert interval.low <= mean(samples) <= interval.high
    scale = max(abs(interval.low), abs(interval.high))
    middle = (interval.low + interval.high) / 2
    assert middle == pytest.approx(mean(samples), abs=1e-12 * scale)


@settings(deadline=None)
@given(runs, levels, levels)
def test_the_interval_shrinks_with_the_level(samples: list[float], a: float, b: float) -> None:
    assume(abs(a - b) > 1e-6)
    assume(coefficient_of_variation(samples) > 1e-6)
    narrow = confidence_interval(samples, level=min(a, b))
    wide = confidence_interval(samples, level=max(a, b))
    assert wide.low < narrow.low < narrow.high < wide.high


def test_the_interval_holds_the_true_mean_as_often_as_it_says() -> None:
    rng = random.Random(20)
    hits = 0
    for _ in range(1000):
        interval = confidence_interval([rng.gauss(10, 2) for _ in range(4)], level=0.9)
        hits += interval.low < 10 < interval.high
    assert hits / 1000 == pytest.approx(0.9, abs=0.03)  # three standard errors


def test_a_level_one_bit_below_certainty_is_still_an_interval() -> None:
    almost = confidence_interval([1.0, 2.0, 3.0], level=1 - 2**-53)
    assert almost.high > confidence_interval([1.0, 2.0, 3.0], level=0.9999).high


@pytest.mark.parametrize(
    ("statistic", "needed"),
    [
        (mean, 1),
        (stdev, 2),
        (coefficient_of_variation, 2),
        (confidence_interval, 2),
        (olympic_mean, 3),
    ],
)
def test_too_few_and_broken_samples_are_refused(
    statistic: Callable[[Sequence[float]], object], needed: int
) -> None:
    statistic([float(value) for value in range(1, needed + 1)])
    few = f"^samples has length {needed - 1}: expected {needed} or more values$"
    with pytest.raises(ValueError, match=few):
        statistic([1.0] * (needed - 1))
    for value in (float("nan"), float("inf")):
        broken = rf"^samples\[1\] is {value!r}: expected a finite number$"
        with pytest.raises(ValueError, match=broken):
            statistic([1.0, value, 3.0])


@pytest.mark.parametrize("samples", [[0.0, 0.0], [-1.0, 1.0], [-2.0, -3.0]])
def test_a_coefficient_of_variation_needs_a_positive_mean(samples: list[float]) -> None:
    with pytest.raises(ValueError, match=r"^the mean of samples is .*: expected more than 0$"):
        coefficient_of_variation(samples)


@pytest.mark.parametrize("level", [0.0, 1.0, 95.0, -0.1, float("nan")])
def test_a_level_lies_strictly_between_0_and_1(level: float) -> None:
    with pytest.raises(ValueError, match=f"^level is {level!r}: expected more than 0 and less"):
        confidence_interval([1.0, 2.0], level=level)
