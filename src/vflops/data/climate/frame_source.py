"""Frames read from an HDF5 file in its own order: every chunk is decompressed once.

A piece is some whole frames, or a band of rows of them where chunks reach over many frames: as
stored by h5py's own choice, 46 frames of 768 x 1152 lie in one row of chunks, 2.6 GB.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vflops.data.climate.field_names import CHANNELS
from vflops.errors import UsageError, VflopsError

_PIECE_BYTES = 1 << 28
"""Most that is held of a file at a time, unless one row of chunks is more."""
_VALUE_BYTES = 4

Version = tuple[int, int, int]
"""Size, time in ns and inode of a file."""


@dataclass(frozen=True)
class FrameSource:
    """The fields of one file: small enough to hand to another process."""

    path: Path
    frames: int
    height: int
    width: int
    chunk: tuple[int, ...] | None
    """Frames, channels, rows and columns that are stored together; None for one block."""
    version: Version
    """Of the file that was opened first: one with another is another, or was written again."""

    @property
    def frame_bytes(self) -> int:
        """What a frame takes in memory."""
        return len(CHANNELS) * self.height * self.width * _VALUE_BYTES

    @property
    def together(self) -> int:
        """Frames that are best read together."""
        return min(self.chunk[0], self.frames) if self.chunk else 1

    def ranges(self, most: int) -> list[tuple[int, int]]:
        """All frames as (start, stop), about ``most`` at a time, cut where chunks end."""
        step = max(1, most // self.together) * self.together
        if step > 4 * most:  # a chunk of a whole year: rather decompressed more than once
            step = most
        return [(start, min(start + step, self.frames)) for start in range(0, self.frames, step)]

    def bands(self) -> list[tuple[int, int]]:
        """The rows of a piece as (start, stop)."""
        chunk_rows = self.chunk[2] if self.chunk else self.height
        row_bytes = self.together * len(CHANNELS) * self.width * _VALUE_BYTES
        step = max(1, _PIECE_BYTES // (row_bytes * chunk_rows)) * chunk_rows
        return [(row, min(row + step, self.height)) for row in range(0, self.height, step)]

    def pieces(self, start: int, stop: int) -> Iterator[Piece]:
        """The fields of frames ``start`` to ``stop``; ``Unreadable`` names those that are not."""
        with self._images() as images:
            for first in range(start, stop, self.together):
                last = min(first + self.together, stop)
                for top, bottom in self.bands():
                    try:
                        fields = images[first:last, :, top:bottom, :]
                    except OSError as error:
                        raise Unreadable(self.path, first, last, error) from error
                    yield Piece(first, top, _single(fields))

    def frame(self, number: int) -> NDArray[np.float32]:
        """One frame, (16, height, width)."""
        with self._images() as images:
            try:
                return _single(images[number])
            except OSError as error:
                raise Unreadable(self.path, number, number + 1, error) from error

    def refuse_changed(self) -> None:
        """An error where the file is no longer the one whose boxes are known."""
        try:
            same = version_of(self.path) == self.version
        except OSError:
            same = False  # it is gone
        if not same:
            raise UsageError(
                f"{self.path} was changed while it was read",
                hint="give the same command again when it is whole",
            )

    @contextmanager
    def _images(self) -> Iterator[Any]:
        """The array of fields, which is the same before and after."""
        with opened(self.path) as file:
            self.refuse_changed()  # before: another file may have frames of another size
            try:
                yield file["images"]
            except Unreadable:
                self.refuse_changed()  # that is why, then
                raise
            self.refuse_changed()


@dataclass(frozen=True)
class Piece:
    """Rows of some frames: ``fields`` is (frames, 16, rows, width)."""

    frame: int
    """The first."""
    row: int
    """The first."""
    fields: NDArray[np.float32]


def _single(fields: NDArray[Any]) -> NDArray[np.float32]:
    """In float32; what is beyond it becomes infinite, and is named as that."""
    with np.errstate(over="ignore"):
        return np.asarray(fields, np.float32)


class Unreadable(UsageError):
    """Frames that HDF5 cannot read: damaged, or cut off."""

    def __init__(self, path: Path, first: int, last: int, error: OSError) -> None:
        self.path, self.frames, self.reason = path, range(first, last), f"HDF5 says: {plain(error)}"
        which = f"frame {first}" if last == first + 1 else f"frames {first} to {last - 1}"
        super().__init__(
            f"cannot read {which} of {path}: {self.reason}",
            hint="the file is damaged: get it again, or leave such frames out with --policy skip",
        )


def version_of(path: Path) -> Version:
    """What the file is now."""
    found = path.stat()
    return found.st_size, found.st_mtime_ns, found.st_ino


@contextmanager
def opened(path: Path) -> Iterator[Any]:
    """The HDF5 file for reading, or an error that says why it cannot be opened."""
    import h5py

    try:
        file = h5py.File(path, "r")
    except OSError as error:
        raise _cannot_open(path, error) from error
    with file:
        yield file


def plain(error: BaseException) -> str:
    """HDF5's own words, without the call that they came from."""
    text = str(error)
    inside = text[text.find("(") + 1 : text.rfind(")")] if "(" in text else text
    return inside or text


def _cannot_open(path: Path, error: OSError) -> VflopsError:
    text = plain(error)
    if path.is_dir():
        return UsageError(
            f"{path} is a folder, expected an HDF5 file", hint="move it out of the folder"
        )
    if path.is_symlink() and not path.exists():
        return UsageError(
            f"{path} is a link to {path.readlink()}, which is not there",
            hint="bring back the file that it names, or remove the link",
        )
    if error.errno in (errno.EAGAIN, errno.EWOULDBLOCK):
        return UsageError(
            f"{path} is being written by another program: it holds a lock",
            hint="wait until that ends, or copy the file and read the copy",
        )
    if "already open for write" in text:
        return UsageError(
            f"{path} is marked as open for writing, and nobody holds a lock on it: its writer was "
            "killed, or writes without locks",
            hint=f"where nobody writes it, clear the mark: h5clear -s {path}; or get the file "
            "again",
        )
    if error.errno in (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP):
        return UsageError(
            f"cannot lock {path}: its file system has no locks",
            hint="set HDF5_USE_FILE_LOCKING=FALSE in the environment, and let nobody write",
        )
    if error.errno == errno.EACCES:
        return UsageError(f"you may not read {path}", hint="ask for the right: chmod +r")
    again = "get the file again: its download or copy did not end, or it was damaged"
    size = path.stat().st_size if path.is_file() else 0
    if "truncated" in text:
        return UsageError(f"{path} is truncated: {text}", hint=again)
    if not size:
        return UsageError(f"{path} is empty: 0 bytes", hint=again)
    return UsageError(f"{path} is no HDF5 file that can be read: {text}", hint=again)
