"""When to stop: checked inside every search before a trial begins."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

Clock = Callable[[], float]


@dataclass(frozen=True)
class Deadline:
    """A moment on a monotonic clock."""

    end_s: float
    clock: Clock = time.monotonic

    def left_s(self) -> float:
        """Return the seconds until then; negative if it has passed."""
        return self.end_s - self.clock()

    def limited_to(self, seconds: float) -> Deadline:
        """Return the deadline ``seconds`` from now, or this one if it is earlier."""
        return Deadline(min(self.end_s, self.clock() + seconds), self.clock)
