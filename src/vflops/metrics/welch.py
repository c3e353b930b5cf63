"""Tests for a difference between two sets of repeats: Welch's t test and Holm's correction."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from vflops.metrics.arguments import require_between, require_samples
from vflops.metrics.statistics import mean, stdev
from vflops.metrics.student_t import student_t_outside, student_t_quantile
from vflops.metrics.summation import sum_in_order


@dataclass(frozen=True, slots=True)
class MeanDifference:
    """The mean of a second set minus the mean of the first."""

    value: float
    low: float
    high: float
    """With ``low``, the range that contains the true difference with probability ``level``."""
    level: float
    p: float
    """The probability of a difference at least this large if the true means are equal."""


def welch(
    first: Sequence[float], second: Sequence[float], *, level: float = 0.95
) -> MeanDifference:
    """Return the difference of two means, each of two or more repeats; variances may differ.

    Repeats must be independent and roughly normally distributed. Raise ValueError if each set has
    only equal values, because there is then no spread to compare the difference with.
    """
    require_between("level", level, 0, 1)
    for name, samples in (("first", first), ("second", second)):
        require_samples(name, samples, at_least=2)
    errors = [stdev(samples) / math.sqrt(len(samples)) for samples in (first, second)]
    error = math.hypot(*errors)
    if error == 0:
        raise ValueError("all repeats of both sets are equal: expected repeats that differ")
    inverse = sum_in_order(
        # The ratio is computed before the power, because powers of small figures underflow.
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


def holm(p_values: Sequence[float], *, level: float = 0.05) -> list[bool]:
    """Return which of several tests are significant after Holm's correction.

    The probability of any false positive is at most ``level``, even if the tests depend on each
    other.
    """
    require_between("level", level, 0, 1)
    significant = [False] * len(p_values)
    for rank, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        if p_values[index] * (len(p_values) - rank) > level:
            break
        significant[index] = True
    return significant
