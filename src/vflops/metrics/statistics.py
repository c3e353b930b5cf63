"""Statistics of repeated runs.

Samples are one figure per run, such as epochs to quality, seconds or VFLOPS. Sums are exact,
because the standard library adds fractions, so results do not depend on the order of the runs.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from vflops.metrics.arguments import (
    require_between,
    require_count,
    require_non_negative,
    require_samples,
)
from vflops.metrics.student_t import student_t_quantile


@dataclass(frozen=True, slots=True)
class ConfidenceInterval:
    """The range that contains the true mean with probability ``level``."""

    low: float
    high: float
    level: float


def mean(samples: Sequence[float]) -> float:
    """Return the arithmetic mean of one or more samples."""
    require_samples("samples", samples, at_least=1)
    if len(samples) == 1:
        return float(samples[0]) + 0.0  # as below, but fast; the sum of -0.0 is 0.0
    return float(statistics.mean(samples))


def stdev(samples: Sequence[float]) -> float:
    """Return the sample standard deviation, with n − 1 in the denominator; needs two samples."""
    require_samples("samples", samples, at_least=2)
    return float(statistics.stdev(samples))


def coefficient_of_variation(samples: Sequence[float]) -> float:
    """Return standard deviation / mean: HPC AI500 V2.0's measure of repeatability.

    V2.0 (section 3.2, table 1) applies it to the epochs to quality. It is meaningful only for
    quantities on a ratio scale, so the mean must be greater than 0.
    """
    spread = stdev(samples)
    return spread / _positive_mean(samples)


def relative_range(samples: Sequence[float]) -> float:
    """Return (max − min) / mean; the mean must be greater than 0."""
    return (max(samples) - min(samples)) / _positive_mean(samples)


def confidence_interval(samples: Sequence[float], *, level: float = 0.95) -> ConfidenceInterval:
    """Return the Student-t interval of the mean: mean ± t · stdev / √n, of two or more samples.

    It assumes that runs are independent and roughly normally distributed.
    """
    require_between("level", level, 0, 1)
    centre = mean(samples)
    margin = margin_of_mean(stdev(samples), len(samples), level=level)
    return ConfidenceInterval(low=centre - margin, high=centre + margin, level=level)


def margin_of_mean(deviation: float, samples: int, *, level: float = 0.95) -> float:
    """Return t · deviation / √samples: how far ``confidence_interval`` extends from the mean."""
    require_non_negative("deviation", deviation)
    require_count("samples", samples, at_least=2)
    require_between("level", level, 0, 1)
    # The negated lower quantile, because 1 − level keeps digits that 1 + level would lose.
    t = -student_t_quantile((1 - level) / 2, degrees_of_freedom=samples - 1)
    return t * (deviation / math.sqrt(samples))


def olympic_mean(samples: Sequence[float]) -> float:
    """Return the mean without the best and the worst sample; needs three samples."""
    require_samples("samples", samples, at_least=3)
    return mean(sorted(samples)[1:-1])


def _positive_mean(samples: Sequence[float]) -> float:
    centre = mean(samples)
    if centre <= 0:
        raise ValueError(f"the mean of samples is {centre!r}: expected more than 0")
    return centre
