"""Whether two sets of repeats differ: Welch's t test, and Holm's correction for many of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from vflops.metrics.arguments import require_between, require_samples
from vflops.metrics.statistics import mean, stdev
from vflops.metrics.student_t import student_t_outside, student_t_quantile


@dataclass(frozen=True, slots=True)
class MeanDifference:
    """How far the mean of a second set is from that of the first."""

    value: float
    low: float
    high: float
    """The range that holds the true difference with probability ``level``."""
    level: float
    p: float
    """The chance of a difference as large as this between sets of one mean."""


def welch(
    first: Sequence[float], second: Sequence[float], *, level: float = 0.95
) -> MeanDifference:
    """The difference of two means, each of two or more repeats; their spreads may differ.

    It supposes repeats that are independent and roughly normal. Where neither set spreads at all
    there is nothing to tell a difference by: a ValueError.
    """
    require_between("level", level, 0, 1)
    for name, samples in (("first", first), ("second", second)):
        require_samples(name, samples, at_least=2)
    errors = [stdev(each) / math.sqrt(len(each)) for each in (first, second)]
    error = math.hypot(*errors)
    if error == 0:
        raise ValueError("neither set spreads: expected repeats that differ")
    inverse = sum(
        (own / error) ** 4 / (len(each) - 1)  # of shares: the squares of small figures vanish
        for own, each in zip(errors, (first, second), strict=True)
    )
    degrees = max(1 / inverse, 1.0)
    value = mean(second) - mean(first)
    t = -student_t_quantile((1 - level) / 2, degrees_of_freedom=degrees)
    return MeanDifference(
        value=value,
        low=value - t * error,
        high=value + t * error,
        level=level,
        p=student_t_outside(value / error, degrees_of_freedom=degrees),
    )


def holm(chances: Sequence[float], *, level: float = 0.05) -> list[bool]:
    """Which of many tests are significant together.

    The chance that any is named by mistake is at most ``level``, however they depend on each other.
    """
    require_between("level", level, 0, 1)
    named = [False] * len(chances)
    for rank, index in enumerate(sorted(range(len(chances)), key=chances.__getitem__)):
        if chances[index] * (len(chances) - rank) > level:
            break
        named[index] = True
    return named
