"""Signals that ask a job to stop; work that would be lost is saved in a checkpoint first."""

from __future__ import annotations

import signal
from contextlib import AbstractContextManager
from types import FrameType
from typing import Protocol

from vflops import interruption

STOP_SIGNALS = (signal.SIGTERM, signal.SIGUSR1)
"""Schedulers send SIGTERM when the time limit is reached, and SIGUSR1 as a warning before."""


class StopSource(Protocol):
    """A source of requests to stop a job."""

    @property
    def signal(self) -> str | None:
        """The name of the signal that asks the job to stop; None if there was none."""

    def set_unsaved_work(self, unsaved: bool) -> None:
        """Set whether the job, when it is asked to stop, has something to save first.

        If so, it polls ``signal``. If not, a signal raises ``Signalled`` in the job at once, and so
        does this call if there was a signal before.
        """


class StopRequest:
    """Records the last stop signal that the process received; first, there is unsaved work."""

    def __init__(self) -> None:
        self.signal: str | None = None
        self._unlimited: AbstractContextManager[None] | None = None
        self.set_unsaved_work(True)
        interruption.watch()
        for number in STOP_SIGNALS:
            signal.signal(number, self._received)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the launcher handles the keyboard

    def set_unsaved_work(self, unsaved: bool) -> None:
        """Set whether the job, when it is asked to stop, has something to save first."""
        if unsaved and self._unlimited is None:
            self._unlimited = interruption.unlimited()
            self._unlimited.__enter__()
        elif not unsaved and self._unlimited is not None:
            self._unlimited.__exit__(None, None, None)
            self._unlimited = None
        if not unsaved and self.signal is not None:
            signal.raise_signal(signal.Signals[self.signal])

    def _received(self, number: int, frame: FrameType | None) -> None:
        self.signal = signal.Signals(number).name
        if self._unlimited is not None:
            return
        if interruption.is_importing(frame):  # torch, which takes seconds; nothing to clean up yet
            interruption.leave(number)
        interruption.interrupt(number, frame)
