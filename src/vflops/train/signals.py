"""Signals that ask a job to stop: it finishes its step, keeps a checkpoint and ends."""

from __future__ import annotations

import signal
from types import FrameType
from typing import Protocol

STOPPING = (signal.SIGTERM, signal.SIGUSR1)
"""A scheduler's end and a scheduler's warning."""


class Stopping(Protocol):
    """What may ask a job to stop."""

    @property
    def signal(self) -> str | None:
        """What asks; None: nothing does."""


class StopRequest:
    """Whether one of the signals has come."""

    def __init__(self) -> None:
        self.signal: str | None = None
        for number in STOPPING:
            signal.signal(number, self._received)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the launcher answers the keyboard

    def _received(self, number: int, frame: FrameType | None) -> None:
        self.signal = signal.Signals(number).name
