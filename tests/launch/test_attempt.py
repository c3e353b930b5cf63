"""Signals that ask a job to stop."""

from __future__ import annotations

import os
import signal

from vflops.interruption import SignalCounter


def test_a_repeated_sigterm_counts_once() -> None:
    with SignalCounter() as stop:
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.count == 1
        assert stop.why == " by SIGTERM"


def test_a_second_ctrl_c_counts() -> None:
    with SignalCounter() as stop:
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
        assert stop.count == 2
