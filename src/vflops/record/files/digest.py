"""What a file is known by: its SHA-256 and its size."""

from __future__ import annotations

import hashlib
import stat
from pathlib import Path
from typing import NamedTuple

from vflops.errors import FolderError

_PART_BYTES = 1 << 20


class Digest(NamedTuple):
    """A file as it was when it was read."""

    sha256: str
    size_bytes: int


def file_digest(path: Path, most_bytes: int | None = None) -> Digest:
    """Hash and size of a file, or of its first ``most_bytes``."""
    found, size = hashlib.sha256(), 0
    try:
        about = path.stat()
        if not stat.S_ISREG(about.st_mode):  # a pipe would be waited for
            raise FolderError(f"cannot read {path}: it is no file")
        # No more is asked for than there seems to be: room for a part would cost more than it.
        part_bytes = min(about.st_size + 1, _PART_BYTES)
        with path.open("rb", buffering=0) as file:
            while part := file.read(_less(part_bytes, most_bytes, size)):
                found.update(part)
                size += len(part)
    except OSError as error:
        raise FolderError(f"cannot read {path}: {error.strerror or error}") from error
    return Digest(found.hexdigest(), size)


def _less(part_bytes: int, most_bytes: int | None, size: int) -> int:
    return part_bytes if most_bytes is None else min(part_bytes, most_bytes - size)
