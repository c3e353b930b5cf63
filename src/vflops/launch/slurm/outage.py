"""Waits for a scheduler that does not answer, with messages and up to a limit."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TypeVar

from vflops.errors import RunFailed
from vflops.launch.scheduler import SchedulerUnavailable
from vflops.text import printable

LIMIT_S = 600.0
"""How long a command waits for a scheduler before it gives up."""
CANCEL_LIMIT_S = 120.0
"""The same for a cancellation, which a user waits for."""
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 2.0, 30.0

_Answer = TypeVar("_Answer")


class Outage:
    """A time in which a scheduler does not answer; it begins with the first ``wait``."""

    def __init__(
        self, scheduler: str, *, limit_s: float | None = None, settle_s: float = 0.0, hint: str
    ) -> None:
        """``hint`` says what to do if the scheduler does not answer within the limit.

        A request that may have been received is repeated after ``settle_s`` at the earliest.
        """
        self._scheduler, self._settle_s, self._hint = scheduler, settle_s, hint
        self._limit_s = LIMIT_S if limit_s is None else limit_s
        self._since_s: float | None = None
        self._pause_s = _FIRST_PAUSE_S

    def wait(self, error: SchedulerUnavailable) -> None:
        """Pause before the next try; raise RunFailed if the limit has passed."""
        if self._since_s is None:
            self._since_s = time.monotonic()
        left_s = self._limit_s - self._waited_s
        if left_s <= 0:
            raise RunFailed(
                f"{self._scheduler} did not answer for {self._waited_s:.0f} s: {error.message}",
                hint=self._hint,
            ) from error
        settle_s = self._settle_s if error.may_have_succeeded else 0.0
        pause_s = min(max(self._pause_s, settle_s), left_s)
        self._pause_s = min(1.5 * self._pause_s, _LONGEST_PAUSE_S)
        _say(
            f"{self._scheduler} does not answer ({error.message}): next try in {pause_s:.0f} s, "
            f"the last one in {left_s:.0f} s"
        )
        time.sleep(pause_s)

    def over(self) -> None:
        """Say that the scheduler answers again, if it did not answer before."""
        if self._since_s is not None:
            _say(f"{self._scheduler} answers again, after {self._waited_s:.0f} s")

    @property
    def _waited_s(self) -> float:
        return time.monotonic() - (self._since_s or 0.0)


def patiently(ask: Callable[[], _Answer], outage: Outage) -> _Answer:
    """Return ``ask()``, called again as long as it raises SchedulerUnavailable."""
    while True:
        try:
            answer = ask()
        except SchedulerUnavailable as error:
            outage.wait(error)
        else:
            outage.over()
            return answer


def _say(text: str) -> None:
    print(f"  {printable(text)}", file=sys.stderr, flush=True)
