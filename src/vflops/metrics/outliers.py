"""Detection of nodes that are slow or noisy beyond chance, given that all do the same work.

Each node contributes one figure, regardless of how many times were measured. Consecutive times may
therefore depend on each other, and small permanent differences between nodes count as chance. The
only assumption is that the logarithms of the figures of healthy nodes are roughly normal.

A t test decides whether a figure could be another sample of the distribution of the figures below
it. It is applied to the largest figure, to the two largest and so on up to nearly half, so that
several slow nodes do not hide each other. The error rate is divided by the number of tests
(Bonferroni). Removing the largest figures shortens the tail of the rest, so errors are even rarer.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from vflops.metrics.arguments import require_between, require_positive, require_samples
from vflops.metrics.student_t import student_t_quantile

MIN_NODES = 4
"""The minimum number of nodes for which an outlier can be identified."""
MIN_PIECES = 16
"""The minimum number of times per job for a meaningful spread."""
CHANCE = 0.05
"""The probability that any healthy node is reported, as slow or as noisy."""
MARGIN = 0.03
"""The smallest excess in time or spread that matters, as a share of the typical time."""
_MIN_SPREAD = 1e-3
"""Smaller spreads count as equal, because clocks cannot distinguish them."""

Trait = Literal["slow", "noisy"]


@dataclass(frozen=True, slots=True)
class Outlier:
    """A node that is slow or noisy."""

    node: int
    """The index of the node."""
    trait: Trait
    excess: float
    """If slow: its typical time / the typical time of all nodes − 1. If noisy: its spread minus the
    typical spread of all nodes."""


def outliers(nodes: Sequence[Sequence[Sequence[float]]]) -> list[Outlier]:
    """Return the outliers among ``nodes``: first the slow ones, then the noisy ones, by index.

    A node is a list of its jobs, and a job is a list of times of equal pieces of work.
    """
    if len(nodes) < MIN_NODES:
        raise ValueError(f"nodes has length {len(nodes)}: expected {MIN_NODES} or more")
    for jobs in nodes:
        for times in jobs:
            require_samples("times", times, at_least=MIN_PIECES)
            require_positive("times", min(times))
    typical = [statistics.fmean(math.log(statistics.median(t)) for t in jobs) for jobs in nodes]
    spreads = [statistics.fmean(math.log(spread(t)) for t in jobs) for jobs in nodes]
    time_excesses = [math.exp(log_s - statistics.median(typical)) - 1 for log_s in typical]
    typical_spread = math.exp(statistics.median(spreads))
    spread_excesses = [math.exp(log_spread) - typical_spread for log_spread in spreads]
    return [
        *(
            Outlier(node, "slow", time_excesses[node])
            for node in _significant(typical, time_excesses)
        ),
        *(
            Outlier(node, "noisy", spread_excesses[node])
            for node in _significant(spreads, spread_excesses)
        ),
    ]


def slow_figures(speeds: Sequence[float]) -> list[int]:
    """Return the indices of the speeds that are low beyond chance; there is one speed per node."""
    require_samples("speeds", speeds, at_least=MIN_NODES)
    require_positive("speeds", min(speeds))
    slowness = [-math.log(speed) for speed in speeds]
    typical = statistics.median(slowness)
    return _significant(slowness, [math.exp(figure - typical) - 1 for figure in slowness])


def spread(times: Sequence[float]) -> float:
    """Return the range from the first to the last decile of ``times``, relative to their median."""
    require_samples("times", times, at_least=2)
    deciles = statistics.quantiles(times, n=10, method="inclusive")
    return max((deciles[-1] - deciles[0]) / statistics.median(times), _MIN_SPREAD)


def largest_beyond_chance(figures: Sequence[float], *, at_most: int, chance: float) -> list[int]:
    """Return the indices of up to ``at_most`` largest figures that are too far above the others.

    If all figures are drawn from one normal distribution, the probability of returning any index
    is below ``chance``. Fewer than half of the indices are returned.
    """
    require_between("chance", chance, 0, 1)
    order = sorted(range(len(figures)), key=figures.__getitem__)
    tests = (len(figures) - 1) // 2
    most = min(at_most, tests)
    moments = _running_moments([figures[index] for index in order])
    for number in range(most, 0, -1):
        below = len(order) - number
        centre, squares = moments[below - 1]
        error = math.sqrt(squares / (below - 1) * (1 + 1 / below))
        above = figures[order[-number]] - centre
        level = chance / (tests * (below + 1))  # any of the remaining ones could be the largest
        if above > -student_t_quantile(level, degrees_of_freedom=below - 1) * error:
            return sorted(order[-number:])
    return []


def _running_moments(figures: Sequence[float]) -> list[tuple[float, float]]:
    """Return the mean of the first figures, and the sum of their squared deviations, by number.

    Welford's algorithm, so that the time is linear in the number of nodes.
    """
    moments, mean, squares = [], 0.0, 0.0
    for number, figure in enumerate(figures, start=1):
        deviation = figure - mean
        mean += deviation / number
        squares += deviation * (figure - mean)
        moments.append((mean, squares))
    return moments


def _significant(figures: Sequence[float], excesses: Sequence[float]) -> list[int]:
    """Return the indices of figures whose excess matters and is not explained by chance."""
    number = sum(excess >= MARGIN for excess in excesses)
    return largest_beyond_chance(figures, at_most=number, chance=CHANCE / 2)
