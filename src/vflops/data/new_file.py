"""A large file that is written under a temporary name and renamed when it is complete."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from vflops.record.files import atomic


class NewFile:
    """A file that appears at ``path`` when it is closed, or not at all."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.bytes = 0
        """The size so far: the end of the last byte written."""
        self.temporary = path.parent / f".{os.getpid()}-{os.urandom(3).hex()}.tmp"
        """Where the file is until it is closed; other processes may write to it, too."""
        try:
            self._file = self.temporary.open("wb", buffering=0)
        except OSError as error:
            raise atomic.cannot_write(path, error) from error

    def write(self, data: memoryview, offset: int | None = None) -> None:
        """Write ``data`` at ``offset``, by default at the end."""
        offset = self.bytes if offset is None else offset
        try:
            write_fully(self._file.fileno(), data, offset)
        except OSError as error:
            self.abandon()
            raise atomic.cannot_write(self.path, error) from error
        self.bytes = max(self.bytes, offset + len(data))

    def set_size(self, size: int) -> None:
        """Truncate the file, or fill it with zeros, to ``size`` bytes."""
        try:
            os.ftruncate(self._file.fileno(), size)
        except OSError as error:
            self.abandon()
            raise atomic.cannot_write(self.path, error) from error
        self.bytes = size

    def close(self) -> None:
        """Sync the file and rename it to ``path``."""
        try:
            os.fsync(self._file.fileno())
            self._file.close()
            self.temporary.replace(self.path)  # the folder is synced once, with the index
        except OSError as error:
            self.abandon()
            raise atomic.cannot_write(self.path, error) from error

    def abandon(self) -> None:
        """Delete the file unless it was closed."""
        with suppress(OSError):
            self._file.close()
        with suppress(OSError):
            self.temporary.unlink()


def write_fully(descriptor: int, data: memoryview, offset: int) -> None:
    """Write all of ``data`` at ``offset``; raise ``OSError`` if that fails."""
    while len(data):  # a full disk accepts part of the data before it fails
        written = os.pwrite(descriptor, data, offset)
        data, offset = data[written:], offset + written
