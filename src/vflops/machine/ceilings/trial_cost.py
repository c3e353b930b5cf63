"""How long a trial will take, foretold from those before it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

_LEAST_GROWTH = 0.6
"""Of a call's time with its work; the rest may be overhead, as on a CPU that others use too."""
_SETUP_POWER = 2 / 3
"""Operands and their check grow with the work to this power: exact for products."""


@dataclass(frozen=True)
class _Call:
    work: int
    call_s: float
    setup_s: float


@dataclass
class Costs:
    """What trials took, by family: those of one family run at a similar speed."""

    _calls: dict[str, list[_Call]] = field(default_factory=dict)
    _first: _Call | None = None

    def add(self, family: str, work: int, call_s: float, setup_s: float) -> None:
        """Remember a trial: its shortest call, and all that was not sampling."""
        call = _Call(work, call_s, setup_s)
        self._first = self._first or call
        self._calls.setdefault(family, []).append(call)

    def call_s(self, family: str, work: int) -> float:
        """Seconds of a call of ``work``; 0 when nothing is known."""
        known = self._known(family)
        enough = [call.call_s for call in known if call.work >= work]
        if enough:
            return min(enough)
        if not known:
            return 0.0
        large = max(known, key=lambda call: call.work)
        return large.call_s + self.growth_s(family) * (work - large.work)

    def growth_s(self, family: str) -> float:
        """Seconds that a call takes longer for each unit of work more; 0 when nothing is known."""
        known = self._known(family)
        if not known:
            return 0.0
        small = min(known, key=lambda call: call.work)
        large = max(known, key=lambda call: call.work)
        least = _LEAST_GROWTH * large.call_s / large.work
        if small.work == large.work:
            return least
        return max((large.call_s - small.call_s) / (large.work - small.work), least)

    def setup_s(self, family: str, work: int) -> float:
        """Seconds before the first call of ``work`` can be timed; 0 when nothing is known.

        The first trial of all loads libraries and foretells nothing; of the others the least
        counts, since what a first call of its kind takes is not taken again.
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
        everything = [call for calls in self._calls.values() for call in calls]
        return self._calls.get(family) or everything
