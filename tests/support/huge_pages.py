"""Memory in huge pages, so that a process with hundreds of megabytes forks in 2 ms, not in 11.

A fork copies an entry per page, and the end of the child frees them: 27 ms of CPU time for 300 MB
in pages of 4 KiB, 4 ms in pages of 2 MiB.
"""

from __future__ import annotations

import ctypes
from contextlib import suppress
from pathlib import Path

_SIZE = 2 << 20
_MADV_HUGEPAGE, _MADV_COLLAPSE = 14, 25


def collapse() -> None:
    """Move the writable memory of this process into huge pages, if the kernel can (Linux 6.1)."""
    madvise = ctypes.CDLL(None).madvise
    madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    with suppress(OSError):
        for line in Path("/proc/self/maps").read_text().splitlines():
            place, rights, _, _, _, *name = line.split()
            if rights == "rw-p" and name in ([], ["[heap]"]):
                start, end = (int(word, 16) for word in place.split("-"))
                start, end = -(-start // _SIZE) * _SIZE, end // _SIZE * _SIZE
                for page in range(start, end, _SIZE):
                    madvise(page, _SIZE, _MADV_HUGEPAGE)
                    madvise(page, _SIZE, _MADV_COLLAPSE)
