"""Which monotonic clock a process reads: it starts anew whenever the machine does."""

from __future__ import annotations

import hashlib
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
