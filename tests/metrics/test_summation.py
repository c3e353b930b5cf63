"""Sums that are the same in every version of Python."""

from __future__ import annotations

from vflops.metrics.summation import sum_in_order


def test_every_addition_is_rounded() -> None:
    assert sum_in_order([0.1] * 10) == 0.9999999999999999  # the built-in: 1.0 since Python 3.12
    assert sum_in_order([1e16, 1.0, -1e16]) == 0.0


def test_integers_stay_exact_integers() -> None:
    assert sum_in_order([2**60, 1]) == 2**60 + 1
    assert repr(sum_in_order([])) == "0"
