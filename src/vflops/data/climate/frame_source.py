"""Frames read from an HDF5 file in the order of its chunks: each chunk is decompressed once.

A piece consists of whole frames, or of a band of their rows if chunks span many frames. With the
chunk size that h5py chooses, 46 frames of 768 x 1152 share one row of chunks, which takes 2.6 GB.
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
"""Maximum number of bytes read at a time, unless one row of chunks is larger."""
_VALUE_BYTES = 4

_DAMAGED = (
    *(RuntimeError, OSError, ValueError, TypeError, LookupError, AttributeError),
    *(ArithmeticError, MemoryError),
)
"""Errors that h5py raises for a damaged file, depending on which bytes are wrong."""
_DAMAGED_HINT = "get the file again: its download or copy did not finish, or it was damaged"

Version = tuple[int, int, int]
"""Size, modification time in ns, and inode of a file."""


@dataclass(frozen=True)
class FrameSource:
    """The fields of one file, without an open handle: it can be sent to another process."""

    path: Path
    frames: int
    height: int
    width: int
    chunk: tuple[int, ...] | None
    """Frames, channels, rows and columns per chunk; None for contiguous storage."""
    version: Version
    """The version when the file was first opened; the file was changed if it differs later."""

    @property
    def frame_bytes(self) -> int:
        """Size of a frame in memory."""
        return len(CHANNELS) * self.height * self.width * _VALUE_BYTES

    @property
    def frames_per_chunk(self) -> int:
        """Number of frames that are best read together."""
        return min(self.chunk[0], self.frames) if self.chunk else 1

    def ranges(self, max_frames: int) -> list[tuple[int, int]]:
        """Return (start, stop) ranges of about ``max_frames`` frames, aligned with chunks."""
        step = max(1, max_frames // self.frames_per_chunk) * self.frames_per_chunk
        if step > 4 * max_frames:  # huge chunks: better to decompress them more than once
            step = max_frames
        return [(start, min(start + step, self.frames)) for start in range(0, self.frames, step)]

    def bands(self) -> list[tuple[int, int]]:
        """Return the rows of each piece as (start, stop)."""
        chunk_rows = self.chunk[2] if self.chunk else self.height
        row_bytes = self.frames_per_chunk * len(CHANNELS) * self.width * _VALUE_BYTES
        step = max(1, _PIECE_BYTES // (row_bytes * chunk_rows)) * chunk_rows
        return [(row, min(row + step, self.height)) for row in range(0, self.height, step)]

    def pieces(self, start: int, stop: int) -> Iterator[Piece]:
        """Yield the fields of frames ``start`` to ``stop``; raise ``Unreadable`` if damaged."""
        with self._images() as images:
            for first in range(start, stop, self.frames_per_chunk):
                last = min(first + self.frames_per_chunk, stop)
                for top, bottom in self.bands():
                    try:
                        fields = images[first:last, :, top:bottom, :]
                    except OSError as error:
                        raise Unreadable(self.path, first, last, error) from error
                    yield Piece(first, top, _to_float32(fields))

    def frame(self, number: int) -> NDArray[np.float32]:
        """Return one frame, (16, height, width)."""
        with self._images() as images:
            try:
                return _to_float32(images[number])
            except OSError as error:
                raise Unreadable(self.path, number, number + 1, error) from error

    def require_unchanged(self) -> None:
        """Raise ``UsageError`` if the file has changed since its boxes were read."""
        try:
            same = version_of(self.path) == self.version
        except OSError:
            same = False  # it was deleted
        if not same:
            raise UsageError(
                f"{self.path} was changed while it was read",
                hint="run the same command again when it is complete",
            )

    @contextmanager
    def _images(self) -> Iterator[Any]:
        """Open the array of fields; raise ``UsageError`` if the file changes meanwhile."""
        with open_hdf5(self.path) as file:
            self.require_unchanged()  # a replaced file may have frames of another size
            try:
                yield file["images"]
            except Unreadable:
                self.require_unchanged()  # the likely reason
                raise
            self.require_unchanged()


@dataclass(frozen=True)
class Piece:
    """Rows of some frames: ``fields`` is (frames, 16, rows, width)."""

    frame: int
    """The first frame."""
    row: int
    """The first row."""
    fields: NDArray[np.float32]


def _to_float32(fields: NDArray[Any]) -> NDArray[np.float32]:
    """Convert to float32; values beyond its range become infinite and are reported as such."""
    with np.errstate(over="ignore"):
        return np.asarray(fields, np.float32)


class Unreadable(UsageError):
    """Frames that HDF5 cannot read because they are damaged or truncated."""

    def __init__(self, path: Path, first: int, last: int, error: OSError) -> None:
        self.path, self.frames, self.reason = (
            path,
            range(first, last),
            f"HDF5 says: {hdf5_message(error)}",
        )
        which = f"frame {first}" if last == first + 1 else f"frames {first} to {last - 1}"
        super().__init__(
            f"cannot read {which} of {path}: {self.reason}",
            hint="the file is damaged: get it again, or leave such frames out with --policy skip",
        )


def version_of(path: Path) -> Version:
    """Return the current version of a file."""
    status = path.stat()
    return status.st_size, status.st_mtime_ns, status.st_ino


@contextmanager
def open_hdf5(path: Path) -> Iterator[Any]:
    """Open an HDF5 file for reading; raise an error that explains why it cannot be opened."""
    import h5py

    try:
        file = h5py.File(path, "r")
    except OSError as error:
        raise _cannot_open(path, error) from error
    with file:
        try:
            yield file
        except VflopsError:
            raise
        except _DAMAGED as error:
            raise UsageError(
                f"{path} cannot be read as HDF5: {hdf5_message(error)}", hint=_DAMAGED_HINT
            ) from error


def hdf5_message(error: BaseException) -> str:
    """Return the message of HDF5 without the name of the call."""
    text = str(error)
    inside = text[text.find("(") + 1 : text.rfind(")")] if "(" in text else text
    return inside or text


def _cannot_open(path: Path, error: OSError) -> VflopsError:
    text = hdf5_message(error)
    if path.is_dir():
        return UsageError(
            f"{path} is a folder, expected an HDF5 file", hint="move it out of the folder"
        )
    if path.is_symlink() and not path.exists():
        return UsageError(
            f"{path} is a link to {path.readlink()}, which does not exist",
            hint="restore the file that it names, or remove the link",
        )
    if error.errno in (errno.EAGAIN, errno.EWOULDBLOCK):
        return UsageError(
            f"{path} is being written by another program, which holds a lock",
            hint="wait until that program ends, or copy the file and read the copy",
        )
    if "already open for write" in text:
        return UsageError(
            f"{path} is marked as open for writing, but not locked: its writer was killed, or "
            "writes without locks",
            hint=f"if no program writes it, clear the mark: h5clear -s {path}; or get the file "
            "again",
        )
    if error.errno in (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP):
        return UsageError(
            f"cannot lock {path}: its file system does not support locks",
            hint="make sure that no program writes it, then set HDF5_USE_FILE_LOCKING=FALSE",
        )
    if error.errno == errno.EACCES:
        return UsageError(f"no permission to read {path}", hint="ask its owner for chmod +r")
    hint = _DAMAGED_HINT
    size = path.stat().st_size if path.is_file() else 0
    if "truncated" in text:
        return UsageError(f"{path} is truncated: {text}", hint=hint)
    if not size:
        return UsageError(f"{path} is empty: 0 bytes", hint=hint)
    return UsageError(f"{path} cannot be read as HDF5: {text}", hint=hint)
