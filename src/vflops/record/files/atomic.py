"""Atomic file writes: to a temporary name, then synced and renamed."""

from __future__ import annotations

import errno
import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from vflops.errors import RunFailed, UsageError, VflopsError

_HINTS = {
    errno.ENOSPC: "free some space, or choose a folder on another disk",
    errno.EDQUOT: "the quota is used up: free some space, or choose a folder on another disk",
    errno.EROFS: "the file system is read-only: choose another folder, or copy the run folder",
    errno.EACCES: "you have no permission to write there: choose another folder",
    errno.EPERM: "you have no permission to write there: choose another folder",
    errno.ENOTDIR: "a component of the path is a file: choose another folder",
}


def write_bytes(path: Path, data: bytes | memoryview) -> None:
    """Replace ``path`` with ``data``, completely or not at all."""
    temporary = path.parent / f".{os.getpid()}-{os.urandom(3).hex()}.tmp"
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        sync_folder(path.parent)
    except BaseException as error:  # Ctrl-C too
        with suppress(OSError):  # there is nothing to remove on a read-only file system
            temporary.unlink()
        if isinstance(error, OSError):
            raise cannot_write(path, error) from error
        raise


def write_text(path: Path, text: str) -> None:
    """Replace ``path`` with ``text``, completely or not at all."""
    write_bytes(path, text.encode(errors="backslashreplace"))


def write_json(path: Path, data: Any) -> None:
    """Replace ``path`` with ``data`` as JSON: the same bytes for the same data."""
    write_text(path, json_text(data))


def json_text(data: Any) -> str:
    """Return ``data`` as JSON text with sorted keys and indentation; NaN is an error."""
    return json.dumps(data, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n"


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


def cannot_write(path: Path, error: OSError) -> VflopsError:
    """Return the error to raise: ``RunFailed`` for a full or faulty disk, else ``UsageError``."""
    kind = RunFailed if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EIO) else UsageError
    hint = _HINTS.get(error.errno or 0, "check the path, or choose another folder")
    return kind(f"cannot write {path}: {error.strerror or error}", hint=hint)
