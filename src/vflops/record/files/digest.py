"""The SHA-256 and the size of a file."""

from __future__ import annotations

import hashlib
import stat
from pathlib import Path
from typing import NamedTuple

from vflops.errors import FolderError

_PART_BYTES = 1 << 20


class Digest(NamedTuple):
    """A file's hash and size at the time when it was read."""

    sha256: str
    size_bytes: int


def file_digest(path: Path, max_bytes: int | None = None) -> Digest:
    """Return hash and size of a file, or of its first ``max_bytes``."""
    sha256, size = hashlib.sha256(), 0
    try:
        about = path.stat()
        if not stat.S_ISREG(about.st_mode):  # reading a pipe would block
            raise FolderError(f"cannot read {path}: it is not a regular file")
        # Of a small file no more is requested than it has: allocating a whole part costs more.
        part_bytes = min(about.st_size + 1, _PART_BYTES)
        with path.open("rb", buffering=0) as file:
            while part := file.read(_next_size(part_bytes, max_bytes, size)):
                sha256.update(part)
                size += len(part)
    except OSError as error:
        raise FolderError(f"cannot read {path}: {error.strerror or error}") from error
    return Digest(sha256.hexdigest(), size)


def _next_size(part_bytes: int, max_bytes: int | None, size: int) -> int:
    return part_bytes if max_bytes is None else min(part_bytes, max_bytes - size)
