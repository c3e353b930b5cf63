"""Folders and small files below a folder are read only once during a block.

All readers in the block see the same content, even if files change meanwhile. Outside of a block,
every call reads the disk.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from operator import attrgetter
from pathlib import Path

from vflops.errors import FolderError
from vflops.record.files.regular_file import read_regular

_NOT_A_FILE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG)
_MAX_FILE_BYTES = 1 << 20
_MAX_TOTAL_BYTES = 1 << 26
"""The maximum sizes of a file that is kept in memory, and of all of them; others are read again."""


class _FolderState:
    """What was read of a folder so far."""

    def __init__(self, folder: Path) -> None:
        self._inside = f"{folder}{os.sep}"
        self._entries: dict[str, dict[str, os.DirEntry[str]] | OSError] = {}
        self._files: dict[str, bytes] = {}
        self.derived: dict[tuple[str, str | None], tuple[Path, ...]] = {}
        self._free_bytes = _MAX_TOTAL_BYTES

    def covers(self, path: str) -> bool:
        """Whether ``path`` is in the folder, or the folder itself."""
        return path.startswith(self._inside) or path == self._inside[:-1]

    def entries(self, folder: str) -> dict[str, os.DirEntry[str]]:
        """Return the entries of a folder by name, sorted, as they were at the first call."""
        known = self._entries.get(folder)
        if known is None:
            try:
                known = {entry.name: entry for entry in _scan(folder)}
            except OSError as error:
                known = error.with_traceback(None)  # its frames would keep all data alive
            self._entries[folder] = known
        if isinstance(known, OSError):
            raise OSError(known.errno, known.strerror, known.filename)
        return known

    def small_file(self, path: str) -> bytes | None:
        """Return the content of a regular file at the first call; None if it is not kept."""
        data = self._files.get(path)
        if data is None:
            data = _read_small_file(path, min(_MAX_FILE_BYTES, self._free_bytes))
            if data is not None:
                self._files[path] = data
                self._free_bytes -= len(data)
        return data


_state: ContextVar[_FolderState | None] = ContextVar("_state", default=None)


@contextmanager
def read_once(folder: Path) -> Iterator[None]:
    """Read each subfolder and each small file of ``folder`` only once during a block."""
    token = _state.set(_FolderState(folder))
    try:
        yield
    finally:
        _state.reset(token)


def folder_entries(folder: str | Path) -> list[os.DirEntry[str]]:
    """Return the entries of a folder, sorted by name, or raise ``OSError``."""
    path = os.fspath(folder)
    state = _state.get()
    if state is None or not state.covers(path):
        return _scan(path)
    return list(state.entries(path).values())


def paths_in(
    folder: Path, which: str | None, select: Callable[[Sequence[os.DirEntry[str]]], Iterable[str]]
) -> list[Path]:
    """Return the paths of the entries that ``select`` names; none if the folder is unreadable.

    During a block, the paths are created once for each folder and each ``which``.
    """
    text = os.fspath(folder)
    state = _state.get()
    covered = state is not None and state.covers(text)
    known = state.derived.get((text, which)) if state is not None and covered else None
    if known is None:
        try:
            entries = folder_entries(text)
        except OSError:
            entries = []
        known = tuple(folder / name for name in select(entries))
        if state is not None and covered:
            state.derived[text, which] = known
    return list(known)


def is_file(path: Path) -> bool:
    """Whether ``path`` is a regular file or a link to one; raise ``FolderError`` if unknown."""
    text = os.fspath(path)
    state = _state.get()
    folder, _, name = text.rpartition(os.sep)
    try:
        if state is None or not state.covers(folder):
            return path.is_file()
        entry = state.entries(folder).get(name)
        return entry is not None and entry.is_file()
    except OSError as error:
        if error.errno in _NOT_A_FILE:
            return False
        raise FolderError(f"cannot read {path}: {error.strerror or error}") from error


def read_bytes(path: Path) -> bytes:
    """Return the content of a file, or raise ``OSError``."""
    data = small_file(path)
    return read_regular(path) if data is None else data


def small_file(path: Path) -> bytes | None:
    """Return the content of a file that is kept in memory during the block; None for others."""
    text = os.fspath(path)
    state = _state.get()
    return state.small_file(text) if state is not None and state.covers(text) else None


def _scan(folder: str) -> list[os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        return sorted(entries, key=attrgetter("name"))


def _read_small_file(path: str, max_bytes: int) -> bytes | None:
    """Return the content of a regular file; None if it is larger than ``max_bytes``."""
    try:
        return read_regular(path, max_bytes=max_bytes)
    except OSError as error:
        if error.errno == errno.EFBIG:
            return None
        raise
