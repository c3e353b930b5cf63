"""Ends a process when its parent dies."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from contextlib import suppress

PARENT = "VFLOPS_PARENT"
"""The variable with the process id of a parent with which an agent is to end."""
_SET_PARENT_DEATH_SIGNAL = 1


def die_with(parent: int) -> None:
    """End this process when ``parent``, which started it, ends; at once if it already has."""
    with suppress(OSError, AttributeError):  # Linux only
        ctypes.CDLL(None).prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit("the process that started this one has ended")
