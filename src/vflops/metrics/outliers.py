"""Places that are slow or noisy beyond chance, where all do the same work.

A place gives one figure, however many times it was measured: so times that follow one another may
depend on each other, and places that differ a little for good are what chance is. Supposed is only
that the logarithms of the figures of healthy places are roughly normal.

A figure is tested against those below it by Student's t, as a further sample of theirs. That is
done for the largest, for the two largest … for nearly half, so that several slow places do not hide
each other, and the chance of an error is divided by all these tests (Bonferroni). What is left when
the largest were taken away has a shorter tail than the normal distribution: errors are rarer still.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from vflops.metrics.arguments import require_between, require_positive, require_samples
from vflops.metrics.student_t import student_t_quantile

LEAST_PLACES = 4
"""With fewer there is no telling which is the odd one."""
LEAST_PIECES = 16
"""Times of a job below which their spread says little."""
CHANCE = 0.05
"""That any healthy place is named, be it as slow or as noisy."""
MARGIN = 0.03
"""Of the typical time: a place that is slower, or spreads wider, by less does not matter."""
_LEAST_SPREAD = 1e-3
"""Spreads below it are alike: clocks do not tell them apart."""

Trait = Literal["slow", "noisy"]


@dataclass(frozen=True, slots=True)
class Outlier:
    """A place that stands out."""

    place: int
    trait: Trait
    excess: float
    """Slow: its typical time over that of all, less 1. Noisy: its spread, less that of all."""


def outliers(places: Sequence[Sequence[Sequence[float]]]) -> list[Outlier]:
    """What stands out of ``places``: for each its jobs, for each of these its times.

    A time is that of a piece of work, equal for all. The first comes first, slow before noisy.
    """
    if len(places) < LEAST_PLACES:
        raise ValueError(f"places has length {len(places)}: expected {LEAST_PLACES} or more")
    for place in places:
        for times in place:
            require_samples("times", times, at_least=LEAST_PIECES)
            require_positive("times", min(times))
    typical = [statistics.fmean(math.log(statistics.median(t)) for t in jobs) for jobs in places]
    spreads = [statistics.fmean(math.log(spread(t)) for t in jobs) for jobs in places]
    slower = [math.exp(each - statistics.median(typical)) - 1 for each in typical]
    usual = math.exp(statistics.median(spreads))
    wider = [math.exp(each) - usual for each in spreads]
    return [
        *(Outlier(place, "slow", slower[place]) for place in _named(typical, slower)),
        *(Outlier(place, "noisy", wider[place]) for place in _named(spreads, wider)),
    ]


def spread(times: Sequence[float]) -> float:
    """How far times lie apart, as a share of the median: without their upper and lower tenth."""
    require_samples("times", times, at_least=2)
    tenths = statistics.quantiles(times, n=10, method="inclusive")
    return max((tenths[-1] - tenths[0]) / statistics.median(times), _LEAST_SPREAD)


def largest_beyond_chance(figures: Sequence[float], *, at_most: int, chance: float) -> list[int]:
    """The indices of the largest figures, ``at_most`` of them, that lie too far above the others.

    Of figures that are all drawn from one normal distribution it names any with less than
    ``chance``. It never names half of them or more.
    """
    require_between("chance", chance, 0, 1)
    order = sorted(range(len(figures)), key=figures.__getitem__)
    tests = (len(figures) - 1) // 2
    for number in range(min(at_most, tests), 0, -1):
        below = [figures[index] for index in order[:-number]]
        centre = statistics.fmean(below)
        variance = math.fsum((each - centre) ** 2 for each in below) / (len(below) - 1)
        error = math.sqrt(variance * (1 + 1 / len(below)))
        above = figures[order[-number]] - centre
        own = chance / (tests * (len(below) + 1))  # any of those left could be the largest
        if above > -student_t_quantile(own, degrees_of_freedom=len(below) - 1) * error:
            return sorted(order[-number:])
    return []


def _named(figures: Sequence[float], excesses: Sequence[float]) -> list[int]:
    """Of those whose excess matters, the ones that chance does not explain."""
    matter = sum(excess >= MARGIN for excess in excesses)
    return largest_beyond_chance(figures, at_most=matter, chance=CHANCE / 2)
