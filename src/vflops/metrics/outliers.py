"""Nodes that are slow or noisy beyond chance, where all do the same work.

Each node contributes one figure, however many times it was measured. So consecutive times may
depend on each other, and small permanent differences between nodes count as chance. The only
assumption is that the logarithms of the figures of healthy nodes are roughly normal.

Student's t tests whether a figure could be a further sample of those below it. This is done for the
largest figure, for the two largest and so on up to nearly half, so that several slow nodes do not
hide each other; the error rate is divided by the number of tests (Bonferroni). What remains after
removing the largest has a shorter tail than the normal distribution, so errors are rarer still.
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
"""With fewer nodes an outlier cannot be identified."""
MIN_PIECES = 16
"""The least number of times per job for a meaningful spread."""
CHANCE = 0.05
"""The probability that any healthy node is reported, as slow or as noisy."""
MARGIN = 0.03
"""A share of the typical time: smaller excesses in time or spread do not matter."""
_MIN_SPREAD = 1e-3
"""Smaller spreads count as equal: clocks cannot tell them apart."""

Trait = Literal["slow", "noisy"]


@dataclass(frozen=True, slots=True)
class Outlier:
    """A node that is slow or noisy."""

    node: int
    """Its index."""
    trait: Trait
    excess: float
    """Slow: its typical time / that of all − 1. Noisy: its spread − that of all."""


def outliers(nodes: Sequence[Sequence[Sequence[float]]]) -> list[Outlier]:
    """Return the outliers among ``nodes``: slow ones first, then noisy ones, in order.

    A node is a list of its jobs, and a job a list of times of equal pieces of work.
    """
    if len(nodes) < MIN_NODES:
        raise ValueError(f"nodes has length {len(nodes)}: expected {MIN_NODES} or more")
    for jobs in nodes:
        for times in jobs:
            require_samples("times", times, at_least=MIN_PIECES)
            require_positive("times", min(times))
    typical = [statistics.fmean(math.log(statistics.median(t)) for t in jobs) for jobs in nodes]
    spreads = [statistics.fmean(math.log(spread(t)) for t in jobs) for jobs in nodes]
    slower = [math.exp(log_s - statistics.median(typical)) - 1 for log_s in typical]
    usual = math.exp(statistics.median(spreads))
    wider = [math.exp(log_spread) - usual for log_spread in spreads]
    return [
        *(Outlier(node, "slow", slower[node]) for node in _significant(typical, slower)),
        *(Outlier(node, "noisy", wider[node]) for node in _significant(spreads, wider)),
    ]


def spread(times: Sequence[float]) -> float:
    """Return the range of ``times`` without the outer tenths, as a share of their median."""
    require_samples("times", times, at_least=2)
    tenths = statistics.quantiles(times, n=10, method="inclusive")
    return max((tenths[-1] - tenths[0]) / statistics.median(times), _MIN_SPREAD)


def largest_beyond_chance(figures: Sequence[float], *, at_most: int, chance: float) -> list[int]:
    """Return the indices of at most ``at_most`` largest figures that lie too far above the others.

    If all figures are drawn from one normal distribution, the probability of returning any is
    below ``chance``. Never returns half of them or more.
    """
    require_between("chance", chance, 0, 1)
    order = sorted(range(len(figures)), key=figures.__getitem__)
    tests = (len(figures) - 1) // 2
    for number in range(min(at_most, tests), 0, -1):
        below = [figures[index] for index in order[:-number]]
        centre = statistics.fmean(below)
        variance = math.fsum((figure - centre) ** 2 for figure in below) / (len(below) - 1)
        error = math.sqrt(variance * (1 + 1 / len(below)))
        above = figures[order[-number]] - centre
        level = chance / (tests * (len(below) + 1))  # any of those left could be the largest
        if above > -student_t_quantile(level, degrees_of_freedom=len(below) - 1) * error:
            return sorted(order[-number:])
    return []


def _significant(figures: Sequence[float], excesses: Sequence[float]) -> list[int]:
    """Return the figures with an excess that matters and that chance does not explain."""
    matter = sum(excess >= MARGIN for excess in excesses)
    return largest_beyond_chance(figures, at_most=matter, chance=CHANCE / 2)
