"""Deadlines, which every search checks before it starts a trial."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

Clock = Callable[[], float]


@dataclass(frozen=True)
class Deadline:
    """A time on a monotonic clock."""

    end_s: float
    clock: Clock = time.monotonic

    def left_s(self) -> float:
        """Return the seconds until the deadline; negative if it has passed."""
        return self.end_s - self.clock()

    def limited_to(self, seconds: float) -> Deadline:
        """Return a deadline ``seconds`` from now, or this deadline if it is earlier."""
        return Deadline(min(self.end_s, self.clock() + seconds), self.clock)
