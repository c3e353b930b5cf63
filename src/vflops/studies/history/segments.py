"""Finds the change points of a series by circular binary segmentation with Student's t.

Olshen, Venkatraman, Lucito and Wigler, Biostatistics 5 (2004), look for the stretch of a series
whose mean is furthest from that of the rest, which also finds a temporary change; the parts are
searched again in the same way. They estimate significance by permutation. Here a t-test of the
stretch is used, with Bonferroni's correction for the number of stretches that were tried: it needs
no random numbers, and finds changes in series that are too short for many permutations.

A level is a part of the series between two changes. If the figures of a level are independent and
roughly normal, a change is found in a series without any with at most the requested probability.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from vflops.metrics.arguments import require_between, require_non_negative, require_samples
from vflops.metrics.student_t import student_t_outside

MIN_RUNS = 3
"""The smallest number of runs of a level: a single slow run is not a change."""
MAX_RUNS = 500
"""Only this many of the newest runs are searched: the number of stretches grows quadratically."""

_Series = NDArray[np.float64]


def change_points(
    figures: Sequence[float], *, chance: float, least_change: float = 0.0
) -> list[int]:
    """Return the indices at which a new level begins, in ascending order.

    Adjacent levels differ by at least the share ``least_change`` of the earlier one, and the
    probability of such a difference by chance is at most ``chance``.
    """
    require_between("chance", chance, 0, 1)
    require_non_negative("least_change", least_change)
    require_samples("figures", figures, at_least=0)
    series = np.asarray(figures[-MAX_RUNS:], dtype=np.float64)
    skipped = len(figures) - len(series)
    edges = sorted({0, len(series), *_edges(series, 0, chance)})
    while len(edges) > 2:
        levels = [series[a:b] for a, b in pairwise(edges)]
        doubts = [_doubt(before, after, chance, least_change) for before, after in pairwise(levels)]
        worst = max(range(len(doubts)), key=doubts.__getitem__)
        if doubts[worst] <= chance:
            break
        del edges[worst + 1]
    return [skipped + edge for edge in edges[1:-1]]


def chance_between(before: Sequence[float], after: Sequence[float]) -> float:
    """Return the probability of two levels this far apart by chance, by Student's t."""
    first, second = np.asarray(before, np.float64), np.asarray(after, np.float64)
    both = np.concatenate([first, second])
    total = float(((both - both.mean()) ** 2).sum())
    apart = len(first) * len(second) / len(both) * float(second.mean() - first.mean()) ** 2
    return _chance(apart, total, len(both))


def _doubt(before: _Series, after: _Series, chance: float, least_change: float) -> float:
    """Return the probability of a change by chance, or 2 if it is too small to matter."""
    small = abs(after.mean() - before.mean()) < least_change * abs(before.mean())
    return 2.0 if small else chance_between(before.tolist(), after.tolist())


def _edges(series: _Series, start: int, chance: float) -> list[int]:
    """Return both ends of the stretch that stands out, and of those inside, before and after it."""
    stretch = _stretch(series, chance)
    if stretch is None:
        return []
    low, high = stretch
    parts = [(0, low), (low, high), (high, len(series))]
    inside = [edge for a, b in parts for edge in _edges(series[a:b], start + a, chance)]
    return [start + low, start + high, *inside]


def _stretch(series: _Series, chance: float) -> tuple[int, int] | None:
    """Return the stretch whose mean is furthest from that of the rest, if it is significant."""
    length = len(series)
    if length < 2 * MIN_RUNS:
        return None
    centred = series - series.mean()
    sums = np.concatenate([[0.0], centred.cumsum()])
    low, high = np.meshgrid(np.arange(length), np.arange(length), indexing="ij")
    sizes = high - low
    # A stretch that ends with the series is the rest of one that begins it.
    tried = (sizes >= MIN_RUNS) & ((low == 0) | (low >= MIN_RUNS))
    tried &= length - high >= MIN_RUNS
    apart = np.zeros_like(sizes, dtype=np.float64)
    lengths = sizes[tried]
    apart[tried] = (
        (sums[high[tried]] - sums[low[tried]]) ** 2 * length / (lengths * (length - lengths))
    )
    best = int(apart.argmax())
    total = float((centred**2).sum())
    probability = _chance(float(apart.flat[best]), total, length)
    if probability * int(tried.sum()) > chance:
        return None
    return int(low.flat[best]), int(high.flat[best])


def _chance(apart: float, total: float, length: int) -> float:
    """Return the p-value of two means whose difference explains ``apart`` of ``total``.

    Both are sums of squares.
    """
    if total == 0:
        return 1.0
    rest = total - apart
    if rest <= 1e-12 * total:  # no spread within the levels
        return 0.0
    t = math.sqrt(apart / (rest / (length - 2)))
    return student_t_outside(t, degrees_of_freedom=length - 2)
