"""Estimates the duration of a trial from earlier trials."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

_MIN_GROWTH_SHARE = 0.6
"""Minimum share of a call's time that grows with its work; the rest may be overhead."""
_SETUP_POWER = 2 / 3
"""The time for operands and the check grows with the work to this power; exact for products."""


@dataclass(frozen=True)
class _Call:
    work: int
    call_s: float
    setup_s: float


@dataclass
class Costs:
    """The times of past trials by family; trials of one family have similar speeds."""

    _calls: dict[str, list[_Call]] = field(default_factory=dict)
    _first: _Call | None = None

    def add(self, family: str, work: int, call_s: float, setup_s: float) -> None:
        """Add a trial: its shortest call, and the time before its first sample."""
        call = _Call(work, call_s, setup_s)
        self._first = self._first or call
        self._calls.setdefault(family, []).append(call)

    def call_s(self, family: str, work: int) -> float:
        """Return the expected seconds of a call with ``work`` operations; 0 without past trials."""
        known = self._known(family)
        sufficient = [call.call_s for call in known if call.work >= work]
        if sufficient:
            return min(sufficient)
        if not known:
            return 0.0
        largest = max(known, key=lambda call: call.work)
        return largest.call_s + self.growth_s(family) * (work - largest.work)

    def growth_s(self, family: str) -> float:
        """Return the seconds per additional unit of work; 0 without past trials."""
        known = self._known(family)
        if not known:
            return 0.0
        smallest = min(known, key=lambda call: call.work)
        largest = max(known, key=lambda call: call.work)
        min_growth_s = _MIN_GROWTH_SHARE * largest.call_s / largest.work
        if smallest.work == largest.work:
            return min_growth_s
        return max(
            (largest.call_s - smallest.call_s) / (largest.work - smallest.work), min_growth_s
        )

    def setup_s(self, family: str, work: int) -> float:
        """Return the expected seconds before a call can be timed; 0 without past trials.

        The very first trial is ignored, since it loads libraries. The estimate is the smallest over
        the other trials, since the extra time of a first call of its kind does not recur.
        """
        return min(
            (
                call.setup_s * math.pow(max(work / call.work, 1.0), _SETUP_POWER)
                for call in self._known(family)
                if call is not self._first
            ),
            default=0.0,
        )

    def _known(self, family: str) -> list[_Call]:
        all_calls = [call for calls in self._calls.values() for call in calls]
        return self._calls.get(family) or all_calls
