"""A bzip2 file as a stream of bytes, with a limit on the decompressed size."""

from __future__ import annotations

import bz2
from collections.abc import Iterator
from pathlib import Path
from typing import Self

from vflops.errors import FolderError
from vflops.publish.evidence.archive_limits import ArchiveRefused, Limits
from vflops.record.files.regular_file import open_regular

_CHUNK = 1 << 18


class BoundedStream:
    """A compressed file that is read in pieces, so that memory stays small."""

    def __init__(self, path: Path, limits: Limits) -> None:
        self._path, self._limits = path, limits
        self._decompressor = bz2.BZ2Decompressor()
        self._buffer = b""
        self._read_bytes = 0

    def __enter__(self) -> Self:
        try:
            self._file = open_regular(self._path)
        except OSError as error:
            raise FolderError(f"cannot read {self._path}: {error.strerror or error}") from error
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def read(self, size: int) -> bytes:
        """Return the next ``size`` bytes; raise if the archive ends earlier."""
        return b"".join(self.parts(size))

    def parts(self, size: int) -> Iterator[bytes]:
        """Yield the next ``size`` bytes in pieces."""
        while size:
            if not self._buffer and not self._fill():
                raise ArchiveRefused(f"{self._path} is truncated", hint="fetch it again")
            part, self._buffer = self._buffer[:size], self._buffer[size:]
            size -= len(part)
            yield part

    def rest(self) -> Iterator[bytes]:
        """Yield the remaining bytes in pieces; raise if data follows the bzip2 stream."""
        while self._buffer or self._fill():
            yield self._buffer
            self._buffer = b""
        if self._decompressor.unused_data or self._file.read(1):
            raise ArchiveRefused(f"{self._path} holds data after the end of its bzip2 stream")

    def _fill(self) -> bool:
        while not self._buffer and not self._decompressor.eof:
            packed = self._file.read(_CHUNK) if self._decompressor.needs_input else b""
            if self._decompressor.needs_input and not packed:
                raise ArchiveRefused(f"{self._path} is truncated", hint="fetch it again")
            try:
                self._buffer = self._decompressor.decompress(packed, _CHUNK)
            except (OSError, ValueError) as error:
                raise ArchiveRefused(
                    f"{self._path} is damaged or not a bzip2 file: {error}",
                    hint="give a file that `vflops archive` made",
                ) from error
            self._read_bytes += len(self._buffer)
            self._limits.check_ratio(self._path, self._read_bytes)
        return bool(self._buffer)
