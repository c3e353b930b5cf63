"""Files that are whole or absent: written to a temporary name, synced, renamed."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from contextlib import suppress
from json.encoder import encode_basestring as _quoted
from math import isfinite
from pathlib import Path
from typing import Any

from vflops.errors import RunFailed, UsageError, VflopsError

_CURES = {
    errno.ENOSPC: "free some room, or choose a place on another disk",
    errno.EDQUOT: "the quota is used up: free some room, or choose a place on another disk",
    errno.EROFS: "the file system is read-only: choose another place, or copy the run folder",
    errno.EACCES: "you may not write there: choose another place",
    errno.EPERM: "you may not write there: choose another place",
    errno.ENOTDIR: "a part of the path is a file: choose another place",
}

_ENCODER = json.JSONEncoder(indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False)
_PLAIN: dict[type, Callable[[Any], str]] = {
    str: _quoted,
    int: int.__repr__,
    float: lambda value: float.__repr__(value) if isfinite(value) else _ENCODER.encode(value),
    bool: lambda value: "true" if value else "false",
    type(None): lambda value: "null",
}


def write_bytes(path: Path, data: bytes | memoryview) -> None:
    """Replace ``path`` by ``data``, whole or not at all."""
    temporary = path.parent / f".{os.getpid()}-{os.urandom(3).hex()}.tmp"
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        sync_folder(path.parent)
    except OSError as error:
        with suppress(OSError):  # on a read-only file system there is nothing to take back
            temporary.unlink()
        raise cannot_write(path, error) from error


def write_text(path: Path, text: str) -> None:
    """Replace ``path`` by ``text``, whole or not at all."""
    write_bytes(path, text.encode(errors="backslashreplace"))


def write_json(path: Path, data: Any) -> None:
    """Replace ``path`` by ``data`` as JSON: the same bytes for the same data."""
    write_text(path, json_text(data))


def json_text(data: Any) -> str:
    """JSON as all files of a run folder hold it: sorted, indented, no NaN."""
    return _indented(data, "\n") + "\n"


def _indented(data: Any, margin: str) -> str:
    """What ``json.dumps`` gives with an indent of 2, in a third of its time."""
    plain = _PLAIN.get(type(data))
    if plain is not None:
        return plain(data)
    deeper = f"{margin}  "
    if isinstance(data, dict | list | tuple) and not data:
        return "{}" if isinstance(data, dict) else "[]"
    if isinstance(data, dict) and set(map(type, data)) == {str}:
        parts = [f"{_quoted(key)}: {_indented(data[key], deeper)}" for key in sorted(data)]
        return f"{{{deeper}{f',{deeper}'.join(parts)}{margin}}}"
    if isinstance(data, list | tuple):
        return f"[{deeper}{f',{deeper}'.join(_indented(each, deeper) for each in data)}{margin}]"
    return _ENCODER.encode(data).replace("\n", margin)


def make_folder(path: Path) -> None:
    """Create ``path`` with its parents, with a clear error where that cannot be."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise cannot_write(path, error) from error


def sync_folder(path: Path) -> None:
    """Make a rename inside ``path`` survive a power cut, where the file system can."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return
    try:
        os.fsync(descriptor)
    except OSError:
        pass  # some network file systems refuse to sync a folder: the file itself is synced
    finally:
        os.close(descriptor)


def cannot_write(path: Path, error: OSError) -> VflopsError:
    """The error for a write that failed: a full disk is the run's failure, the rest wrong use."""
    kind = RunFailed if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EIO) else UsageError
    hint = _CURES.get(error.errno or 0, "check the path, or choose another place")
    return kind(f"cannot write {path}: {error.strerror or error}", hint=hint)
