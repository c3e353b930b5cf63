"""Reads regular files only: a pipe, a device or a socket in place of a file never blocks.

Sparse files are refused: they take no space on the disk of a stranger, but all time of a reader.
"""

from __future__ import annotations

import errno
import os
import stat
from io import FileIO
from pathlib import Path

MAX_BYTES = 1 << 31
"""The largest file that is read into memory at once."""
MAX_RATIO = 200
"""The maximum number of bytes of a file per byte that is stored; logs compress to about a 30th."""
SPARE_BYTES = 64 << 20
"""Bytes allowed on top of the ratio."""
_MAX_PART_BYTES = 1 << 24


def open_regular(path: str | Path, *, follow_links: bool = True) -> FileIO:
    """Open a regular file for reading; raise ``OSError`` for anything else."""
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY  # a pipe must not block
    try:
        descriptor = os.open(path, flags if follow_links else flags | os.O_NOFOLLOW)
    except OSError as error:
        if error.errno == errno.ELOOP and Path(path).is_symlink():
            why = "it is a link to itself" if follow_links else "it is a link, not a file"
            raise OSError(errno.ELOOP, why, os.fspath(path)) from error
        raise
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file", os.fspath(path))
        least_bytes = (status.st_size - SPARE_BYTES) // MAX_RATIO
        if least_bytes > 0 and not _stores(descriptor, least_bytes):
            why = f"it is sparse: most of its {status.st_size:,} bytes are not stored"
            raise OSError(errno.EINVAL, why, os.fspath(path))
        return FileIO(descriptor)
    except BaseException:
        os.close(descriptor)
        raise


def _stores(descriptor: int, least_bytes: int) -> bool:
    """Whether at least ``least_bytes`` of a file are outside of its holes."""
    stored_bytes = end = 0
    try:
        while stored_bytes < least_bytes:
            start = os.lseek(descriptor, end, os.SEEK_DATA)
            end = os.lseek(descriptor, start, os.SEEK_HOLE)
            stored_bytes += end - start
    except OSError as error:
        return error.errno != errno.ENXIO  # the rest is a hole; others cannot tell
    finally:
        os.lseek(descriptor, 0, os.SEEK_SET)
    return True


def read_regular(
    path: str | Path, *, max_bytes: int = MAX_BYTES, follow_links: bool = True
) -> bytes:
    """Return the content of a regular file of at most ``max_bytes``, or raise ``OSError``."""
    with open_regular(path, follow_links=follow_links) as file:
        parts, remaining = [], max_bytes + 1
        size = os.fstat(file.fileno()).st_size + 1  # one read is enough, unless the file grows
        while remaining > 0 and (part := file.read(min(size, remaining, _MAX_PART_BYTES))):
            parts.append(part)
            remaining -= len(part)
    if remaining <= 0:
        raise OSError(errno.EFBIG, f"it is larger than {max_bytes:,} bytes", os.fspath(path))
    return parts[0] if len(parts) == 1 else b"".join(parts)
