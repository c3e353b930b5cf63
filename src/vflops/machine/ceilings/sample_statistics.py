"""Median and spread of samples: what a noisy neighbour can bend least."""

from __future__ import annotations

import statistics
from collections.abc import Sequence


def median(samples: Sequence[float]) -> float:
    """The middle sample; the mean of the middle two when their number is even."""
    return float(statistics.median(samples))


def spread(samples: Sequence[float]) -> float | None:
    """Interquartile range over median, None from fewer than two samples.

    The quartiles are interpolated between the samples (R's type 7, numpy's default).
    """
    if len(samples) < 2:
        return None
    low, middle, high = statistics.quantiles(samples, n=4, method="inclusive")
    return (high - low) / middle
