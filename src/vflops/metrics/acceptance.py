"""Decides whether a mean is on the right side of a threshold, from repeats of a measurement.

The decision is one-sided: a figure is accepted if the confidence bound of its mean that faces the
threshold is beyond it, rejected if the opposite bound is short of it, and otherwise undecided.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from vflops.metrics.arguments import require_between, require_samples
from vflops.metrics.quality import Better
from vflops.metrics.statistics import ConfidenceInterval, confidence_interval, mean, stdev
from vflops.metrics.student_t import student_t_quantile

Decision = Literal["accepted", "rejected", "undecided"]
MAX_REPEATS_COMPUTED = 10_000
"""A larger number of repeats is not computed: nobody runs as many."""


def one_sided_bounds(samples: Sequence[float], *, confidence: float) -> ConfidenceInterval:
    """Return the bounds that the mean of two or more samples is above, or below, with confidence.

    Each bound holds by itself with ``confidence``, which is above 0.5; both together hold with
    probability 2 · ``confidence`` − 1.
    """
    require_between("confidence", confidence, 0.5, 1)
    return confidence_interval(samples, level=2 * confidence - 1)


def decide(bounds: ConfidenceInterval, *, threshold: float, better: Better) -> Decision:
    """Return whether the mean within ``bounds`` is on the better side of ``threshold``."""
    near, far = (bounds.low, bounds.high) if better == "higher" else (-bounds.high, -bounds.low)
    limit = threshold if better == "higher" else -threshold
    if near >= limit:
        return "accepted"
    return "rejected" if far < limit else "undecided"


def repeats_needed(samples: Sequence[float], *, threshold: float, confidence: float) -> int | None:
    """Return how many repeats would decide, if their mean and spread stay as they are.

    This is the smallest n of 2 or more with t · stdev / √n ≤ |mean − threshold|, where t is
    Student's t at ``confidence`` with n − 1 degrees of freedom. None if the mean is the threshold,
    or if more than `MAX_REPEATS_COMPUTED` repeats are needed.
    """
    require_between("confidence", confidence, 0.5, 1)
    require_samples("samples", samples, at_least=2)
    spread, margin = stdev(samples), abs(mean(samples) - threshold)

    def decided(repeats: int) -> bool:
        t = -student_t_quantile(1 - confidence, degrees_of_freedom=repeats - 1)
        return t * spread / math.sqrt(repeats) <= margin

    if margin == 0 or not decided(MAX_REPEATS_COMPUTED):
        return None
    low, high = 1, MAX_REPEATS_COMPUTED  # the half-width of the interval falls with n
    while high - low > 1:
        middle = (low + high) // 2
        if decided(middle):
            high = middle
        else:
            low = middle
    return high
