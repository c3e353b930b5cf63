"""When to stop: asked inside every search, before a trial is begun."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

Clock = Callable[[], float]


@dataclass(frozen=True)
class Deadline:
    """A moment on a clock that never goes back."""

    end_s: float
    clock: Clock = time.monotonic

    def left_s(self) -> float:
        """Seconds until then; negative when it has passed."""
        return self.end_s - self.clock()

    def within(self, seconds: float) -> Deadline:
        """The deadline ``seconds`` from now, or this one where it comes first."""
        return Deadline(min(self.end_s, self.clock() + seconds), self.clock)
