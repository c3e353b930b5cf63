"""Sums of floats with the same bits in every version of Python."""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterable


def sum_in_order(values: Iterable[float]) -> float:
    """Return the sum, rounded after each addition; 0 if there are no values.

    Since Python 3.12 the built-in ``sum`` corrects rounding errors of floats, so that the last
    digit of a score would depend on the version that computes it.
    """
    return functools.reduce(operator.add, values, 0)
