"""A node's local copy of packed data: complete or absent, and repaired if a file is damaged.

vflops-<fingerprint>/
  train-00000.bin …   the files that the index names, nothing else
  staged.json         one stamp per file, to recognise the file without reading it
  index.json          written last: a folder without it is incomplete
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import ClassVar

from vflops.data.destination import free_bytes
from vflops.data.packed_index import (
    INDEX,
    REPAIR,
    StoredFile,
    cannot_read,
    check_size,
    hash_file,
    index_fingerprint,
)
from vflops.errors import FolderError, RunFailed, UsageError, VflopsError
from vflops.record.files import atomic
from vflops.record.files.document import Document
from vflops.record.files.regular_file import read_regular
from vflops.record.files.strict_json import parse_json
from vflops.units import quantity

_STAMPS = "staged.json"
_PART = ".part"
_BLOCK_BYTES = 1 << 22
_FILES_AT_ONCE = 4
_MARGIN_BYTES = 1 << 26
"""Space to leave free, because other programs write logs to the same disk."""

_Stamp = tuple[int, int, int]


class NotStagedError(Exception):
    """Data that cannot be staged; the job reads it from the shared file system instead."""


class Stamps(Document):
    """``staged.json``: the stamp of each file when its bytes were last compared with the index."""

    schema_name: ClassVar[str] = "vflops.staged"

    stamps: dict[str, _Stamp]
    """Size in bytes, inode and ctime in ns of each file; programs cannot set the ctime."""


@dataclass(frozen=True)
class PackedSource:
    """Packed data on the shared file system: the bytes of its index, and the files it names."""

    path: Path
    index: bytes
    files: tuple[StoredFile, ...]

    @classmethod
    def open(cls, path: Path, fingerprint: str) -> PackedSource:
        """Open the data in ``path``; check the ``fingerprint`` of its index and the file sizes."""
        if not (path / INDEX).is_file():
            raise NotStagedError(f"{path} has no {INDEX}, and only packed data is staged")
        index = read_regular(path / INDEX)
        try:
            fields = parse_json(index)
            actual = index_fingerprint(fields)
            splits = fields["splits"].values()
            entries = [entry for split in splits for entry in (split["table"], *split["shards"])]
            entries += [split["digests"] for split in fields.get("contents", {}).values()]
            files = tuple(
                StoredFile.model_validate({name: entry[name] for name in StoredFile.model_fields})
                for entry in entries
            )
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise NotStagedError(f"{path / INDEX} is not an index of packed data") from error
        if actual != fingerprint:
            raise NotStagedError(f"{path / INDEX} is not the index that the job started with")
        for file in files:
            check_size(path, file)
        return cls(path, index, files)


@dataclass(frozen=True)
class LocalCopy:
    """The copy in ``target``; only one process at a time may use it."""

    source: PackedSource
    target: Path

    def missing(self) -> list[StoredFile]:
        """Create the folder if needed and return the files that are missing or damaged."""
        self._create_folder()
        known = self._known_stamps()
        with ThreadPoolExecutor(_FILES_AT_ONCE) as pool:
            intact = pool.map(lambda file: self._is_intact(file, known), self.source.files)
            checked = zip(self.source.files, intact, strict=True)
            return [file for file, good in checked if not good]

    def complete(self, missing: Sequence[StoredFile]) -> None:
        """Copy the missing files, then the index; on failure delete the whole copy."""
        if not missing and self._has_index() and self._known_stamps() == self._stamps():
            return
        try:
            self._require_free_space(missing)
            if missing:
                (self.target / INDEX).unlink(missing_ok=True)
            self._copy_all(missing)
            Stamps(stamps=self._stamps()).write(self.target / _STAMPS)
            atomic.write_bytes(self.target / INDEX, self.source.index)
        except OSError as error:
            self._delete()
            raise NotStagedError(atomic.cannot_write(self.target, error).message) from error
        except (NotStagedError, RunFailed, UsageError) as error:
            self._delete()
            raise NotStagedError(str(error)) from error

    def _create_folder(self) -> None:
        """Create the folder; one that another user could change is not trusted."""
        self.target.mkdir(exist_ok=True)
        status = self.target.lstat()
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
            raise NotStagedError(f"{self.target} is not a folder of this user")
        for stale in self.target.glob(f".*{_PART}"):
            stale.unlink()  # left by a process that was killed

    def _known_stamps(self) -> dict[str, _Stamp]:
        try:
            return Stamps.read(self.target / _STAMPS).stamps
        except VflopsError:
            return {}  # missing or damaged: all files are read and hashed

    def _is_intact(self, file: StoredFile, known: Mapping[str, _Stamp]) -> bool:
        path = self.target / file.file
        try:
            stamp = _stamp(path)
            same = stamp[0] == file.bytes
            return same and (known.get(file.file) == stamp or hash_file(path) == file.sha256)
        except (OSError, FolderError):
            return False

    def _has_index(self) -> bool:
        try:
            return (self.target / INDEX).read_bytes() == self.source.index
        except OSError:
            return False

    def _stamps(self) -> dict[str, _Stamp]:
        return {file.file: _stamp(self.target / file.file) for file in self.source.files}

    def _require_free_space(self, missing: Sequence[StoredFile]) -> None:
        needed, free = sum(file.bytes for file in missing) + _MARGIN_BYTES, free_bytes(self.target)
        if missing and needed > free:
            raise NotStagedError(
                f"{self.target.parent} has {quantity(free, 'B')} free, "
                f"but {quantity(needed, 'B')} are needed"
            )

    def _delete(self) -> None:
        shutil.rmtree(self.target, ignore_errors=True)

    def _copy_all(self, files: Sequence[StoredFile]) -> None:
        stop = Event()
        with ThreadPoolExecutor(_FILES_AT_ONCE) as pool:
            copies = [pool.submit(self._copy, file, stop) for file in files]
            try:
                for copy in as_completed(copies):
                    copy.result()
            except BaseException:
                stop.set()
                raise

    def _copy(self, file: StoredFile, stop: Event) -> None:
        part, hashed = self.target / f".{file.file}{_PART}", hashlib.sha256()
        source = self.source.path / file.file
        with part.open("wb") as copy:
            for block in _blocks(source):
                if stop.is_set():
                    return
                hashed.update(block)
                copy.write(block)
            copy.flush()
            os.fsync(copy.fileno())
        if hashed.hexdigest() != file.sha256:
            part.unlink()
            raise FolderError(f"{source} differs from what was packed", hint=REPAIR)
        part.replace(self.target / file.file)


def _stamp(path: Path) -> _Stamp:
    status = path.stat()
    return status.st_size, status.st_ino, status.st_ctime_ns


def _blocks(path: Path) -> Iterator[memoryview]:
    """Yield a source file in blocks; raise ``FolderError``, not ``OSError``, if reading fails."""
    buffer = memoryview(bytearray(_BLOCK_BYTES))
    try:
        with path.open("rb", buffering=0) as file:
            while count := file.readinto(buffer):
                yield buffer[:count]
    except OSError as error:
        raise cannot_read(path, error) from error
