"""Signals that ask a job to stop; the job finishes its step, writes a checkpoint and ends."""

from __future__ import annotations

import signal
from types import FrameType
from typing import Protocol

STOP_SIGNALS = (signal.SIGTERM, signal.SIGUSR1)
"""Schedulers send SIGTERM when the time limit is reached, and SIGUSR1 as a warning before."""


class StopSource(Protocol):
    """A source of requests to stop a job."""

    @property
    def signal(self) -> str | None:
        """The name of the signal that asks the job to stop; None if there was none."""


class StopRequest:
    """Records the last stop signal that the process received."""

    def __init__(self) -> None:
        self.signal: str | None = None
        for number in STOP_SIGNALS:
            signal.signal(number, self._received)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the launcher handles the keyboard

    def _received(self, number: int, frame: FrameType | None) -> None:
        self.signal = signal.Signals(number).name
