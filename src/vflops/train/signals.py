"""Signals that ask a job to stop: it finishes its step, writes a checkpoint and ends."""

from __future__ import annotations

import signal
from types import FrameType
from typing import Protocol

STOP_SIGNALS = (signal.SIGTERM, signal.SIGUSR1)
"""A scheduler sends the first when the time is up, and the second as a warning before."""


class StopSource(Protocol):
    """Something that may ask a job to stop."""

    @property
    def signal(self) -> str | None:
        """The name of the request to stop; None if there is none."""


class StopRequest:
    """Records whether one of the signals was received."""

    def __init__(self) -> None:
        self.signal: str | None = None
        for number in STOP_SIGNALS:
            signal.signal(number, self._received)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the launcher handles the keyboard

    def _received(self, number: int, frame: FrameType | None) -> None:
        self.signal = signal.Signals(number).name
