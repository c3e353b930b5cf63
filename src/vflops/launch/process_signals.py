"""Sends signals to processes that are verified first, because a pid may have been reused."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path


def signal_process(pid: int, number: signal.Signals, is_expected: Callable[[], bool]) -> None:
    """Send a signal to a process if it is still the expected one."""
    with suppress(ProcessLookupError):
        handle = os.pidfd_open(pid)
        try:
            if is_expected():
                signal.pidfd_send_signal(handle, number)
        finally:
            os.close(handle)


def has_open(pid: int, file: Path) -> bool:
    """Whether the process has the file open, as the holder of a lock does."""
    with suppress(OSError):
        status = file.stat()
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                if os.path.samestat(descriptor.stat(), status):
                    return True
    return False
