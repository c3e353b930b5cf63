"""Where the time of a job goes: always in one phase, so the phases add up to the whole."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import psutil

from vflops.record.formats.job_events import PHASES


class Clock:
    """Seconds in each phase since the process began."""

    def __init__(self) -> None:
        age_s = max(time.time() - psutil.Process().create_time(), 0.0)
        self._since_s = time.monotonic() - age_s
        self._spent_s = dict.fromkeys(PHASES, 0.0)
        self._phase = "start-up"

    def enter(self, phase: str) -> str:
        """Be in ``phase`` from now on; the phase before it is returned."""
        before, now_s = self._phase, time.monotonic()
        self._spent_s[before] += now_s - self._since_s
        self._phase, self._since_s = phase, now_s
        return before

    def rename(self, phase: str) -> None:
        """Count what has passed since the last change as ``phase`` too, and be in it."""
        self._phase = phase

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """A context in which time goes into ``name``."""
        before = self.enter(name)
        try:
            yield
        finally:
            self.enter(before)

    def spent_s(self) -> dict[str, float]:
        """Seconds of every phase up to now."""
        self.enter(self._phase)
        return {name: round(seconds, 6) for name, seconds in self._spent_s.items()}
