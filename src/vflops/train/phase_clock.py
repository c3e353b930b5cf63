"""The time of a job by phase; a job is always in one phase, so the phases add up to its time."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol

import psutil

from vflops.record.formats.job_events import PHASES

_START_TIME = 19
"""The start of a process among the fields of its ``stat`` file after its name."""


class Beat(Protocol):
    """Reports progress to whoever watches this process."""

    def __call__(self, phase: str, completed: str | None = None) -> None:
        """Report the phase that the process is in, and the one that it has just completed."""


def _no_beat(phase: str, completed: str | None = None) -> None:
    pass


class Clock:
    """Measures the seconds spent in each phase since the process started."""

    def __init__(self, beat: Beat = _no_beat) -> None:
        """``beat`` is called with the phase that is entered, as a sign of progress."""
        self._beat, self._reported = beat, PHASES[0]
        self._since_s = time.monotonic() - max(_process_age_s(), 0.0)
        self._spent_s = dict.fromkeys(PHASES, 0.0)
        self._phase = "start-up"
        self.on_tick: Callable[[], None] = lambda: None
        """What else is done at each tick, in the thread that ticks."""

    def enter(self, phase: str) -> str:
        """Enter ``phase``; return the phase before it."""
        self._report(phase)
        return self._enter(phase)

    def tick(self) -> None:
        """Report progress within the phase; it costs about a microsecond."""
        self._beat(self._reported)
        self.on_tick()

    def rest(self) -> None:
        """Report that what follows, up to the next phase, may take any time."""
        self._report(PHASES[0])

    def _report(self, phase: str, completed: str | None = None) -> None:
        self._reported = phase
        self._beat(phase, completed)

    def _enter(self, phase: str) -> str:
        before, now_s = self._phase, time.monotonic()
        self._spent_s[before] += now_s - self._since_s
        self._phase, self._since_s = phase, now_s
        return before

    def rename(self, phase: str) -> None:
        """Enter ``phase``, and count the time since the last change as ``phase``, too."""
        self._phase = phase

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Count the time inside the context as phase ``name``."""
        before = self.enter(name)
        try:
            yield
        finally:
            self._report(before, completed=name)
            self._enter(before)

    def spent_s(self) -> dict[str, float]:
        """Return the seconds spent in each phase so far."""
        self._enter(self._phase)
        return {name: round(seconds, 6) for name, seconds in self._spent_s.items()}


def _process_age_s() -> float:
    """Return the seconds since this process started, which a clock that was set does not change."""
    with suppress(OSError, ValueError, AttributeError):  # Linux counts them from the start
        fields = Path("/proc/self/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        started_s = int(fields[_START_TIME]) / os.sysconf("SC_CLK_TCK")
        return time.clock_gettime(time.CLOCK_BOOTTIME) - started_s
    return time.time() - psutil.Process().create_time()
