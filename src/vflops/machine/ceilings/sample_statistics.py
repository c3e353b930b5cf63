"""Median and spread of samples, both robust against noise from other processes."""

from __future__ import annotations

import statistics
from collections.abc import Sequence


def median(samples: Sequence[float]) -> float:
    """Return the middle sample, or the mean of the middle two."""
    return float(statistics.median(samples))


def spread(samples: Sequence[float]) -> float | None:
    """Return the interquartile range divided by the median; None for fewer than two samples.

    The quartiles are interpolated between the samples (R's type 7, numpy's default).
    """
    if len(samples) < 2:
        return None
    low, middle, high = statistics.quantiles(samples, n=4, method="inclusive")
    return (high - low) / middle
