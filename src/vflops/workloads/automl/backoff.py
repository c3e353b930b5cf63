"""Delays between polls of files that other processes write: short at first, then longer."""

from __future__ import annotations

import time

_SHARE = 0.25
"""The delay relative to the time waited so far, which limits how late a change is noticed."""


class Backoff:
    """The delays of one wait, which keep many processes from flooding a shared file system."""

    def __init__(self, first_s: float = 0.05, max_s: float = 1.0) -> None:
        self._first_s, self._max_s = first_s, max_s
        self._began_s = time.monotonic()

    @property
    def next_s(self) -> float:
        """The delay until the next poll."""
        waited_s = time.monotonic() - self._began_s
        return min(max(self._first_s, _SHARE * waited_s), self._max_s)

    def wait(self) -> None:
        """Sleep until the next poll."""
        time.sleep(self.next_s)
