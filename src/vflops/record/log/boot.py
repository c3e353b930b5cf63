"""The monotonic clock: which one a process reads, and how long it has stood still.

It starts anew whenever the machine does, and stands still while the machine is suspended.
"""

from __future__ import annotations

import hashlib
import time
from contextlib import suppress
from functools import cache
from pathlib import Path

_LENGTH = 16


@cache
def monotonic_clock_id() -> str | None:
    """Return an id of the monotonic clock; equal ids in two processes mean that they share it.

    None where the system has no such id: then only the wall clock relates two processes.
    """
    with suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        # A container may have its own monotonic clock.
        namespace = Path("/proc/self/ns/time")
        own = namespace.readlink() if namespace.exists() else ""
        return hashlib.sha256(f"{boot} {own}".encode()).hexdigest()[:_LENGTH]
    return None


def suspended_s() -> float | None:
    """Return how long the machine was suspended since it was started, plus a constant.

    None where the system has no clock that also runs while the machine is suspended.
    """
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    if clock is None:
        return None
    return time.clock_gettime(clock) - time.clock_gettime(time.CLOCK_MONOTONIC)
