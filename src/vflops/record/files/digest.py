"""The SHA-256 and the size of a file."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import NamedTuple

from vflops.errors import FolderError
from vflops.record.files.read_once import small_file
from vflops.record.files.regular_file import open_regular

_MAX_CHUNK_BYTES = 1 << 20


class Digest(NamedTuple):
    """The hash and the size of a file at the time when it was read."""

    sha256: str
    size_bytes: int


def file_digest(path: Path, max_bytes: int | None = None) -> Digest:
    """Return the hash and the size of a file, or of its first ``max_bytes``."""
    sha256, size = hashlib.sha256(), 0
    try:
        data = small_file(path)
        if data is not None:
            data = data[:max_bytes]
            return Digest(hashlib.sha256(data).hexdigest(), len(data))
        with open_regular(path) as file:
            # For a small file, a buffer of its size: allocating more takes longer than reading.
            chunk_bytes = min(os.fstat(file.fileno()).st_size + 1, _MAX_CHUNK_BYTES)
            while chunk := file.read(_read_size(chunk_bytes, max_bytes, size)):
                sha256.update(chunk)
                size += len(chunk)
    except OSError as error:
        raise FolderError(f"cannot read {path}: {error.strerror or error}") from error
    return Digest(sha256.hexdigest(), size)


def _read_size(chunk_bytes: int, max_bytes: int | None, size: int) -> int:
    return chunk_bytes if max_bytes is None else min(chunk_bytes, max_bytes - size)
