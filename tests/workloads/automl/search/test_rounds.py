"""Rounds: the published epochs and patience, scaled to a profile."""

from __future__ import annotations

import pytest

from vflops.workloads.automl.search.rounds import epochs, patience


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
