"""Who stands out: healthy places almost never, by simulation; a slow or a noisy one does."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from vflops.metrics.outliers import CHANCE, MARGIN, Outlier, largest_beyond_chance, outliers, spread

PIECES = 24
Noise = Callable[[np.random.Generator, int], np.ndarray]


def independent(chance: np.random.Generator, places: int) -> np.ndarray:
    """Times around 1 s, by 15 %."""
    return np.exp(0.15 * chance.standard_normal((places, PIECES)))


def autocorrelated(chance: np.random.Generator, places: int) -> np.ndarray:
    """The same, but a slow piece is followed by slow ones: 0.9 of what it was goes on."""
    steps = chance.standard_normal((places, PIECES))
    for piece in range(1, PIECES):
        steps[:, piece] = 0.9 * steps[:, piece - 1] + np.sqrt(1 - 0.81) * steps[:, piece]
    return np.exp(0.15 * steps)


def lasting(chance: np.random.Generator, places: int) -> np.ndarray:
    """Healthy places that differ for good, by 5 %, and hardly vary."""
    own = 0.05 * chance.standard_normal((places, 1))
    return np.exp(own + 0.01 * chance.standard_normal((places, PIECES)))


def found(times: np.ndarray) -> list[Outlier]:
    return outliers([[list(row)] for row in times])


@pytest.mark.parametrize("places", [4, 8, 16])
@pytest.mark.parametrize("noise", [independent, autocorrelated, lasting])
def test_healthy_places_are_named_in_at_most_one_of_twenty_runs(noise: Noise, places: int) -> None:
    chance, runs = np.random.default_rng(places), 200
    named = sum(bool(found(noise(chance, places))) for _ in range(runs))
    # Three standard deviations of a chance of 5 % over so many runs.
    assert named <= runs * CHANCE + 3 * (runs * CHANCE * (1 - CHANCE)) ** 0.5


@pytest.mark.parametrize("slow", [(5,), (2, 5), (0, 2, 5)])
def test_places_that_are_a_tenth_slower_are_named_and_do_not_hide_each_other(
    slow: tuple[int, ...],
) -> None:
    chance, hits = np.random.default_rng(7), 0
    for _ in range(50):
        times = np.exp(0.02 * chance.standard_normal((8, PIECES)))
        times[list(slow)] *= 1.1
        named = [outlier for outlier in found(times) if outlier.trait == "slow"]
        hits += tuple(outlier.node for outlier in named) == slow
        assert all(outlier.excess == pytest.approx(0.1, abs=0.04) for outlier in named)
    assert hits >= 47


def test_a_place_whose_times_spread_is_named_noisy_and_not_slow() -> None:
    chance, hits = np.random.default_rng(3), 0
    for _ in range(50):
        times = np.exp(0.01 * chance.standard_normal((8, PIECES)))
        times[3] = np.exp(0.2 * chance.standard_normal(PIECES))
        times[3] /= np.median(times[3])
        hits += [(outlier.node, outlier.trait) for outlier in found(times)] == [(3, "noisy")]
    assert hits >= 45


def test_what_is_beyond_chance_but_does_not_matter_is_not_named() -> None:
    times = np.exp(0.0005 * np.random.default_rng(1).standard_normal((8, PIECES)))
    times[1] *= 1 + 0.7 * MARGIN
    assert largest_beyond_chance([float(np.median(row)) for row in times], at_most=1, chance=0.01)
    assert found(times) == []
    times[1] *= 1 + 0.7 * MARGIN
    assert [(outlier.node, outlier.trait) for outlier in found(times)] == [(1, "slow")]


def test_a_fast_place_is_not_slow() -> None:
    times = np.exp(0.01 * np.random.default_rng(1).standard_normal((8, PIECES)))
    times[4] *= 0.8
    assert found(times) == []


def test_of_a_place_with_several_jobs_the_mean_counts() -> None:
    chance = np.random.default_rng(5)
    places = [[list(np.exp(0.02 * chance.standard_normal(PIECES))) for _ in "12"] for _ in range(8)]
    places[6] = [[1.1 * time_s for time_s in times] for times in places[6]]
    assert [(outlier.node, outlier.trait) for outlier in outliers(places)] == [(6, "slow")]


def test_the_spread_leaves_out_a_tenth_at_either_end() -> None:
    times = [1.0 + 0.01 * number for number in range(21)]
    assert spread(times) == pytest.approx(0.16 / 1.1)
    assert spread([*times[:-1], 50.0]) == pytest.approx(0.16 / 1.1)
    assert spread([1.0] * 20) == 1e-3


def test_half_of_the_places_are_never_named() -> None:
    assert largest_beyond_chance([0, 0, 0, 5, 5, 5.0], at_most=6, chance=0.01) == []
    assert largest_beyond_chance([0, 0, 0, 0, 5, 5.0], at_most=6, chance=0.01) == [4, 5]
    assert largest_beyond_chance([0, 0, 0, 0, 5, 5.0], at_most=1, chance=0.01) == []


def test_too_little_is_refused() -> None:
    with pytest.raises(ValueError, match="nodes has length 3"):
        outliers([[[1.0] * PIECES]] * 3)
    with pytest.raises(ValueError, match="times has length 3"):
        outliers([[[1.0] * 3]] * 4)
    with pytest.raises(ValueError, match="times is 0"):
        outliers([[[0.0] * PIECES]] * 4)
