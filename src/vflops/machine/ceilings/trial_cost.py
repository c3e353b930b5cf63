"""How long a trial will take, estimated from earlier ones."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

_LEAST_GROWTH = 0.6
"""The least share of a call's time that grows with its work; the rest may be overhead."""
_SETUP_POWER = 2 / 3
"""The cost of operands and check grows with the work to this power: exact for products."""


@dataclass(frozen=True)
class _Call:
    work: int
    call_s: float
    setup_s: float


@dataclass
class Costs:
    """The costs of past trials by family: those of one family run at a similar speed."""

    _calls: dict[str, list[_Call]] = field(default_factory=dict)
    _first: _Call | None = None

    def add(self, family: str, work: int, call_s: float, setup_s: float) -> None:
        """Add a trial: its shortest call, and the time before its first sample."""
        call = _Call(work, call_s, setup_s)
        self._first = self._first or call
        self._calls.setdefault(family, []).append(call)

    def call_s(self, family: str, work: int) -> float:
        """Return the expected seconds of a call of ``work``; 0 without any trial."""
        known = self._known(family)
        enough = [call.call_s for call in known if call.work >= work]
        if enough:
            return min(enough)
        if not known:
            return 0.0
        large = max(known, key=lambda call: call.work)
        return large.call_s + self.growth_s(family) * (work - large.work)

    def growth_s(self, family: str) -> float:
        """Return the seconds per additional unit of work; 0 without any trial."""
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
        """Return the expected seconds before a call of ``work`` can be timed; 0 without any trial.

        The very first trial loads libraries and is ignored. Of the others the smallest counts,
        since the extra cost of a first call of its kind does not occur again.
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
