"""A large file while it is written: under another name until it is whole."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from vflops.record.files import atomic


class NewFile:
    """A file that appears at ``path`` with ``close``, or never."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.bytes = 0
        """Up to the last that was written."""
        self._temporary = path.parent / f".{os.getpid()}-{os.urandom(3).hex()}.tmp"
        try:
            self._file = self._temporary.open("wb", buffering=0)
        except OSError as error:
            raise atomic.cannot_write(path, error) from error

    def write(self, data: memoryview, place: int | None = None) -> None:
        """Write ``data`` at ``place``, the end where none is named."""
        place = self.bytes if place is None else place
        try:
            while len(data):  # a disk that fills takes a part first, then refuses
                written = os.pwrite(self._file.fileno(), data, place)
                data, place = data[written:], place + written
        except OSError as error:
            self.abandon()
            raise atomic.cannot_write(self.path, error) from error
        self.bytes = max(self.bytes, place)

    def close(self, size: int | None = None) -> None:
        """Put the file in its place, cut or filled with zeros to ``size``."""
        try:
            if size is not None:
                os.ftruncate(self._file.fileno(), size)
                self.bytes = size
            os.fsync(self._file.fileno())
            self._file.close()
            self._temporary.replace(self.path)  # the folder is synced with the index, at the end
        except OSError as error:
            self.abandon()
            raise atomic.cannot_write(self.path, error) from error

    def abandon(self) -> None:
        """Leave nothing behind of a file that was not closed."""
        with suppress(OSError):
            self._file.close()
        with suppress(OSError):
            self._temporary.unlink()
