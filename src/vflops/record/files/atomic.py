"""Atomic file writes: to a temporary name, then synced and renamed."""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from vflops.errors import DiskFull, RunFailed, UsageError, VflopsError
from vflops.record.files.json_layout import indented_json
from vflops.units import quantity

_FULL_B = 16 << 10
"""A disk with less free space is full: it may hold a block, but no file of a run."""
_HINTS = {
    errno.ENOSPC: "free some space there, or choose a folder on another disk",
    errno.EDQUOT: "the quota is used up: free some space there, or choose a folder on another disk",
    errno.EROFS: "the file system is read-only: choose another folder, or copy the run folder",
    errno.EACCES: "you have no permission to write there: choose another folder",
    errno.EPERM: "you have no permission to write there: choose another folder",
    errno.ENOTDIR: "a component of the path is a file: choose another folder",
}


def write_bytes(
    path: Path, data: bytes | memoryview, *, durable: bool = True, private: bool = False
) -> None:
    """Replace ``path`` with ``data``, completely or not at all.

    If ``durable``, the data is on the disk on return; otherwise a power failure may lose it. If
    ``private``, no other user can ever read it.
    """
    temporary = path.parent / f".{os.getpid()}-{os.urandom(3).hex()}.tmp"
    try:
        with open(temporary, "xb", opener=_private if private else None) as file:
            file.write(data)
            file.flush()
            if durable:
                os.fsync(file.fileno())
        temporary.replace(path)
        if durable:
            sync_folder(path.parent)
    except BaseException as error:  # Ctrl-C too
        with suppress(OSError):  # there is nothing to remove on a read-only file system
            temporary.unlink()
        if isinstance(error, OSError):
            raise cannot_write(path, error, needed_b=len(data)) from error
        raise


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, mode=0o600)


def write_text(path: Path, text: str, *, private: bool = False) -> None:
    """Replace ``path`` with ``text``, completely or not at all; see ``write_bytes``."""
    write_bytes(path, text.encode(errors="backslashreplace"), private=private)


def write_json(path: Path, data: Any) -> None:
    """Replace ``path`` with ``data`` as JSON: the same bytes for the same data."""
    write_text(path, json_text(data))


def json_text(data: Any) -> str:
    """Return ``data`` as JSON text with sorted keys and indentation; NaN is an error."""
    return indented_json(data) + "\n"


def make_folder(path: Path) -> None:
    """Create ``path`` with its parents, or raise a ``VflopsError``."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise cannot_write(path, error) from error


def sync_folder(path: Path) -> None:
    """Make a rename inside ``path`` survive a power failure, if the file system supports it."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return
    try:
        os.fsync(descriptor)
    except OSError:
        pass  # some network file systems cannot sync a folder; the file itself is synced
    finally:
        os.close(descriptor)


def cannot_write(path: Path, error: OSError, *, needed_b: int | None = None) -> VflopsError:
    """Return the error to raise: ``DiskFull``, ``RunFailed`` for a faulty disk, or ``UsageError``.

    That of a full disk says how many bytes are free and, if known, how many are needed.
    """
    kind: type[VflopsError] = RunFailed if error.errno == errno.EIO else UsageError
    hint = _HINTS.get(error.errno or 0, "check the path, or choose another folder")
    message = f"cannot write {path}: {error.strerror or error}"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        kind = DiskFull
        message += f" ({_space_text(path, needed_b)})"
    return kind(message, hint=hint)


def is_full(folder: Path) -> bool:
    """Whether the disk of an existing folder has no room for even a small file."""
    free = free_b(folder)
    return free is not None and free < _FULL_B


def free_b(folder: Path) -> int | None:
    """Return the free bytes on the disk of ``folder``; None if they are not known."""
    try:
        status = os.statvfs(folder)
    except OSError:
        return None
    return status.f_bavail * status.f_frsize


def _space_text(path: Path, needed_b: int | None) -> str:
    folder = next((parent for parent in path.absolute().parents if parent.is_dir()), Path("/"))
    free = free_b(folder)
    needed = "" if needed_b is None else f"{quantity(needed_b, 'B')} needed, "
    return f"{needed}{'unknown' if free is None else quantity(free, 'B')} free in {folder}"
