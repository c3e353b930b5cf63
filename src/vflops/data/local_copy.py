"""A node's own copy of packed data: whole or absent, known again by a look, mended where damaged.

vflops-<fingerprint>/
  train-00000.bin …   what the index names, nothing else
  staged.json         by what each file is known again without reading it
  index.json          comes last: a folder without it is not there
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import ClassVar

from vflops.data.packed import INDEX, REPAIR, StoredFile, check_size, hash_file
from vflops.data.workspace import free_bytes
from vflops.errors import FolderError, RunFailed, UsageError, VflopsError
from vflops.record.files import atomic
from vflops.record.files.document import Document
from vflops.units import quantity

_STAMPS = "staged.json"
_PART = ".part"
_BLOCK_BYTES = 1 << 22
_FILES_AT_ONCE = 4
_MARGIN_BYTES = 1 << 26
"""Room that stays free: others log to the same disk."""

_Stamp = tuple[int, int, int]


class NotStagedError(Exception):
    """Why the data is read where it is: nobody's fault that would end a job."""


class Stamps(Document):
    """``staged.json``: what the files were when their bytes were last compared with the index."""

    schema_name: ClassVar[str] = "vflops.staged"

    stamps: dict[str, _Stamp]
    """Bytes, inode, and the time of the last change, which no program can set."""


@dataclass(frozen=True)
class PackedSource:
    """Packed data where it is: its index as bytes, and the files that the index names."""

    path: Path
    index: bytes
    files: tuple[StoredFile, ...]

    @classmethod
    def open(cls, path: Path, fingerprint: str) -> PackedSource:
        """The data in ``path`` if its index is that of ``fingerprint``; sizes are checked."""
        if not (path / INDEX).is_file():
            raise NotStagedError(f"{path} has no {INDEX}, and only packed data is staged")
        index = (path / INDEX).read_bytes()
        if hashlib.sha256(index).hexdigest() != fingerprint:
            raise NotStagedError(f"{path / INDEX} is not the index that the job began with")
        try:
            splits = json.loads(index)["splits"].values()
            named = [each for split in splits for each in (split["table"], *split["shards"])]
            plain = [{name: each[name] for name in StoredFile.model_fields} for each in named]
            files = tuple(StoredFile.model_validate(each) for each in plain)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise NotStagedError(
                f"{path / INDEX} does not name its files as packed data does"
            ) from error
        for file in files:
            check_size(path, file)
        return cls(path, index, files)


@dataclass(frozen=True)
class LocalCopy:
    """The copy in ``target``; one process at a time may use this."""

    source: PackedSource
    target: Path

    def missing(self) -> list[StoredFile]:
        """The files to be copied; the folder is made, and what is in it is looked at or read."""
        self._own()
        known = self._known()
        with ThreadPoolExecutor(_FILES_AT_ONCE) as pool:
            whole = pool.map(lambda file: self._is_whole(file, known), self.source.files)
            found = zip(self.source.files, whole, strict=True)
            return [file for file, good in found if not good]

    def complete(self, missing: Sequence[StoredFile]) -> None:
        """Copy what is missing, the index last; where that fails nothing stays."""
        if not missing and self._has_index() and self._known() == self._stamps():
            return
        try:
            self._refuse_short_of_room(missing)
            if missing:
                (self.target / INDEX).unlink(missing_ok=True)
            self._copy_all(missing)
            Stamps(stamps=self._stamps()).write(self.target / _STAMPS)
            atomic.write_bytes(self.target / INDEX, self.source.index)
        except OSError as error:
            self._drop()
            raise NotStagedError(atomic.cannot_write(self.target, error).message) from error
        except (NotStagedError, RunFailed, UsageError) as error:
            self._drop()
            raise NotStagedError(str(error)) from error

    def _own(self) -> None:
        """Make the folder; one that somebody else can change is not read."""
        self.target.mkdir(exist_ok=True)
        found = self.target.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
            raise NotStagedError(f"{self.target} is no folder of this user")
        for left in self.target.glob(f".*{_PART}"):
            left.unlink()  # of a process that was killed

    def _known(self) -> dict[str, _Stamp]:
        try:
            return Stamps.read(self.target / _STAMPS).stamps
        except VflopsError:
            return {}  # not there, or damaged: all files are read

    def _is_whole(self, file: StoredFile, known: Mapping[str, _Stamp]) -> bool:
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

    def _refuse_short_of_room(self, missing: Sequence[StoredFile]) -> None:
        needed, free = sum(file.bytes for file in missing) + _MARGIN_BYTES, free_bytes(self.target)
        if missing and needed > free:
            raise NotStagedError(
                f"{self.target.parent} has {quantity(free, 'B')} free, "
                f"{quantity(needed, 'B')} are needed"
            )

    def _drop(self) -> None:
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
        with part.open("wb") as copy:
            for block in _blocks(self.source.path / file.file):
                if stop.is_set():
                    return
                hashed.update(block)
                copy.write(block)
            copy.flush()
            os.fsync(copy.fileno())
        if hashed.hexdigest() != file.sha256:
            part.unlink()
            wrong = self.source.path / file.file
            raise FolderError(f"{wrong} is not what was packed", hint=REPAIR)
        part.replace(self.target / file.file)


def _stamp(path: Path) -> _Stamp:
    found = path.stat()
    return found.st_size, found.st_ino, found.st_ctime_ns


def _blocks(path: Path) -> Iterator[memoryview]:
    """The bytes of a file of the shared file system, whose faults are not those of the copy."""
    buffer = memoryview(bytearray(_BLOCK_BYTES))
    try:
        with path.open("rb", buffering=0) as file:
            while count := file.readinto(buffer):
                yield buffer[:count]
    except OSError as error:
        raise FolderError(f"cannot read {path}: {error.strerror or error}") from error
