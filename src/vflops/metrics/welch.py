"""Tests of whether two sets of repeats differ: Welch's t test, and Holm's correction."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from vflops.metrics.arguments import require_between, require_samples
from vflops.metrics.statistics import mean, stdev
from vflops.metrics.student_t import student_t_outside, student_t_quantile


@dataclass(frozen=True, slots=True)
class MeanDifference:
    """The mean of a second set minus the mean of the first."""

    value: float
    low: float
    high: float
    """The range that holds the true difference with probability ``level``."""
    level: float
    p: float
    """The probability of a difference this large between sets with the same mean."""


def welch(
    first: Sequence[float], second: Sequence[float], *, level: float = 0.95
) -> MeanDifference:
    """Return the difference of two means, each of two or more repeats; their spreads may differ.

    Assumes that repeats are independent and roughly normal. Raise ValueError if all repeats of
    both sets are equal: then there is no spread to compare a difference with.
    """
    require_between("level", level, 0, 1)
    for name, samples in (("first", first), ("second", second)):
        require_samples(name, samples, at_least=2)
    errors = [stdev(samples) / math.sqrt(len(samples)) for samples in (first, second)]
    error = math.hypot(*errors)
    if error == 0:
        raise ValueError("all repeats of both sets are equal: expected repeats that differ")
    inverse = sum(
        # The ratio is taken before the power: squares of small figures underflow.
        (part / error) ** 4 / (len(samples) - 1)
        for part, samples in zip(errors, (first, second), strict=True)
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
    """Return which of several tests are significant after Holm's correction.

    The probability of any false positive is at most ``level``, however the tests depend on each
    other.
    """
    require_between("level", level, 0, 1)
    significant = [False] * len(chances)
    for rank, index in enumerate(sorted(range(len(chances)), key=chances.__getitem__)):
        if chances[index] * (len(chances) - rank) > level:
            break
        significant[index] = True
    return significant
