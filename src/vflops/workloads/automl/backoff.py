"""Delays between polls of files that other processes write: short at first, then longer."""

from __future__ import annotations

import time

_SHARE = 0.25
"""The delay as a share of the time waited so far: nothing is noticed later than by that."""


class Backoff:
    """The delays of one wait; it keeps many processes from flooding a shared file system."""

    def __init__(self, first_s: float = 0.05, most_s: float = 1.0) -> None:
        self._first_s, self._most_s = first_s, most_s
        self._began_s = time.monotonic()

    @property
    def next_s(self) -> float:
        """The delay until the next poll."""
        waited_s = time.monotonic() - self._began_s
        return min(max(self._first_s, _SHARE * waited_s), self._most_s)

    def wait(self) -> None:
        """Sleep until the next poll."""
        time.sleep(self.next_s)
