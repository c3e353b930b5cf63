"""The repeats of one figure on two sides, and whether chance can explain their difference.

Both comparisons of runs use these pairs: ``vflops compare`` tests whether two sides differ (Welch's
test), ``vflops reproduce`` whether new figures lie within the spread of the recorded ones.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from vflops.metrics.statistics import mean, stdev
from vflops.metrics.student_t import student_t_quantile
from vflops.metrics.welch import MeanDifference, welch

MIN_REPEATS = 3
"""The smallest number of repeats from which a spread is estimated."""
_CONFIDENCE = 0.95

Name = TypeVar("Name", bound=Hashable)


@dataclass(frozen=True)
class FigurePair(Generic[Name]):
    """The repeats of one figure: the base, and the values that are compared with it."""

    name: Name
    base: Sequence[float]
    value: Sequence[float]

    @property
    def base_mean(self) -> float | None:
        """The mean of the base; None without repeats."""
        return mean(self.base) if self.base else None

    @property
    def value_mean(self) -> float | None:
        """The mean of the compared values; None without repeats."""
        return mean(self.value) if self.value else None

    @property
    def difference(self) -> float | None:
        """The difference of the means relative to the base's; None if that is 0 or missing."""
        base, value = self.base_mean, self.value_mean
        return (value - base) / abs(base) if base and value is not None else None

    @property
    def has_spread(self) -> bool:
        """Whether the repeats of at least one side differ among themselves."""
        return len(set(self.base)) > 1 or len(set(self.value)) > 1

    def test(self) -> MeanDifference:
        """Return Welch's test of the means.

        Positive figures are compared by their logarithms, so that no bound is below −100 %.
        """
        if not self._by_ratio:
            return welch(self.base, self.value)
        return welch([math.log(x) for x in self.base], [math.log(x) for x in self.value])

    def bound(self, difference: float) -> float:
        """Return a confidence bound of ``test`` as a share of the base's mean."""
        if self._by_ratio:
            return math.expm1(difference)
        share = difference / abs(mean(self.base))
        return share if min(*self.base, *self.value) < 0 else max(share, -1.0)

    def expected_spread(self) -> float:
        """Return how far the two means may be apart by chance, from the spread of the base alone.

        This is half the width of the 95 % prediction interval for the mean of the new repeats.
        """
        tail = (1 - _CONFIDENCE) / 2
        t = -student_t_quantile(tail, degrees_of_freedom=len(self.base) - 1)
        return t * stdev(self.base) * math.sqrt(1 / len(self.base) + 1 / len(self.value))

    @property
    def _by_ratio(self) -> bool:
        return min(*self.base, *self.value) > 0


def common_figures(
    base: Mapping[Name, Sequence[float]], value: Mapping[Name, Sequence[float]]
) -> Iterator[FigurePair[Name]]:
    """Yield the figures that both sides have, in the order of the base."""
    return (FigurePair(name, base[name], value[name]) for name in base if name in value)
