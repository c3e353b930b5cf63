"""Rounds: the published epochs and patience, scaled to a profile, and when to stop."""

from __future__ import annotations

import pytest

from vflops.automl.search.rounds import epochs, is_tuned, is_warm_up, patience, should_stop


def test_epochs_grow_as_published() -> None:
    assert [epochs(round) for round in range(6)] == [15, 30, 45, 60, 60, 60]
    assert [patience(round) for round in range(9)] == [6, 8, 10, 12, 14, 16, 18, 20, 20]


def test_a_profile_scales_both() -> None:
    assert [epochs(round, 4) for round in range(5)] == [1, 2, 3, 4, 4]
    assert [epochs(round, 3) for round in range(5)] == [1, 2, 3, 3, 3]
    assert [epochs(round, 1) for round in range(5)] == [1, 1, 1, 1, 1]
    assert [patience(round, 12) for round in range(8)] == [2, 2, 2, 3, 3, 4, 4, 4]
    assert patience(0, 1) == 1
    assert epochs(3, 90) == 90


@pytest.mark.parametrize(("round", "most"), [(-1, 60), (0, 0)])
def test_no_such_round(round: int, most: int) -> None:
    with pytest.raises(ValueError, match="expected"):
        epochs(round, most)
    with pytest.raises(ValueError, match="expected"):
        patience(round, most)


def test_tuning_starts_with_the_fifth_round() -> None:
    assert [is_tuned(round) for round in range(6)] == [False] * 4 + [True] * 2
    assert [is_warm_up(round) for round in range(6)] == [True] * 4 + [False] * 2


@pytest.mark.parametrize(
    ("losses", "stops"),
    [
        ([], False),
        ([1.0], False),
        ([1.0, 1.0], False),
        ([1.0, 1.0, 1.0], True),
        ([1.0, 2.0, 3.0], True),
        ([1.0, 2.0, 0.9], False),
        ([1.0, 2.0, 0.9, 0.9, 0.95], True),
        ([3.0, 2.0, 1.0, 0.5], False),
        ([1.0, float("nan"), float("nan")], True),
        ([float("nan"), float("nan"), 1.0], False),
        ([float("inf"), float("inf")], True),
    ],
)
def test_a_flat_loss_stops(losses: list[float], stops: bool) -> None:
    assert should_stop(losses, 2) is stops
    assert should_stop([-loss for loss in losses], 2, maximise=True) is stops


def test_a_gain_below_the_least_is_none() -> None:
    assert not should_stop([1.0, 0.99, 0.98], 2)
    assert should_stop([1.0, 0.99, 0.98], 2, least=0.05)
    assert not should_stop([1.0, 0.97, 0.94], 2, least=0.05)  # slow, but it adds up


def test_no_patience_is_refused() -> None:
    with pytest.raises(ValueError, match="patience is 0"):
        should_stop([1.0], 0)
