"""Pauses between two looks at what others write: short at first, longer while nothing comes."""

from __future__ import annotations

import time

_SHARE = 0.25
"""Of the time waited so far: nothing is seen later than by that."""


class Backoff:
    """One wait for something; many processes look at one shared file system."""

    def __init__(self, first_s: float = 0.05, most_s: float = 1.0) -> None:
        self._first_s, self._most_s = first_s, most_s
        self._began_s = time.monotonic()

    @property
    def next_s(self) -> float:
        """How long to wait until the next look."""
        waited_s = time.monotonic() - self._began_s
        return min(max(self._first_s, _SHARE * waited_s), self._most_s)

    def wait(self) -> None:
        """Until the next look."""
        time.sleep(self.next_s)
