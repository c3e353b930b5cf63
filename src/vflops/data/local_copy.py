"""A node's local copy of packed data, repaired if a file is damaged.

vflops-<fingerprint>/
  train-00000.bin …   the files that the index names
  train-00000.present the samples that this shard has, if it is a sparse file without the others
  staged.json         one stamp per whole file, to recognise the file without reading it
  index.json          written last: a folder without it is incomplete
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import ClassVar

import numpy as np

from vflops.data.destination import free_bytes
from vflops.data.packed_index import (
    INDEX,
    REPAIR,
    ShardEntry,
    StoredFile,
    cannot_read,
    check_size,
    hash_file,
    index_fingerprint,
)
from vflops.data.present_samples import (
    NO_STAMP,
    Mask,
    PresentSamples,
    Stamp,
    present_file,
    present_samples,
)
from vflops.data.shard_samples import MissingSamples, NeededSamples
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


class NotStagedError(Exception):
    """Data that cannot be staged; the job reads it from the shared file system instead."""


class Stamps(Document):
    """``staged.json``: the stamp of each file when its bytes were last compared with the index."""

    schema_name: ClassVar[str] = "vflops.staged"

    stamps: dict[str, Stamp]
    """Of each file that is whole."""


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
class Missing:
    """What a copy lacks."""

    files: tuple[StoredFile, ...]
    """Files to copy whole."""
    shards: tuple[MissingSamples, ...] = ()
    """Shards to copy in part."""
    needed: NeededSamples | None = None
    """The samples that the job reads; None if it needs all, or if the copy has all."""
    readable: bool = False
    """Whether jobs can read the copy meanwhile: it lacks nothing but samples."""

    def __bool__(self) -> bool:
        return bool(self.files or self.shards)

    @property
    def bytes(self) -> int:
        """Bytes to copy."""
        whole = sum(file.bytes for file in self.files)
        if self.needed is None:
            return whole
        return whole + sum(self.needed.bytes_of(shard.numbers) for shard in self.shards)


@dataclass(frozen=True)
class LocalCopy:
    """The copy in ``target``; only one process at a time may use it."""

    source: PackedSource
    target: Path
    samples: Mask | None = None
    """The training samples that are needed; None for all of them."""

    def missing(self) -> Missing:
        """Create the folder if needed and return what is missing or damaged.

        Of shards that are not whole, only the needed samples are missing.
        """
        self._create_folder()
        known = self._known_stamps()
        with ThreadPoolExecutor(_FILES_AT_ONCE) as pool:
            whole = pool.map(lambda file: self._is_whole(file, known), self.source.files)
            checked = zip(self.source.files, whole, strict=True)
            lacking = [file for file, good in checked if not good]
        needed = None
        if lacking and self.samples is not None:
            needed = NeededSamples.of(self.source.path, self.samples)
        shards = {} if needed is None else needed.shards()
        files, parts, readable = [], [], self._has_index()
        for file in lacking:
            partial = present_file(self.target / file.file).exists()
            if needed is not None and file.file in shards and (partial or not readable):
                part = self._part(needed, *shards[file.file])
                parts += [part] if part.new or part.wanted.any() else []
                readable = readable and not part.new
            else:  # also a shard that was whole, which other jobs may need
                files.append(file)
                readable = readable and partial
        return Missing(tuple(files), tuple(parts), needed, readable)

    def complete(self, missing: Missing) -> None:
        """Copy what is missing, then the index.

        On failure, delete the copy unless it can be read: other jobs may be reading it.
        """
        if not missing and self._has_index() and self._known_stamps() == self._stamps():
            return
        try:
            self._require_free_space(missing)
            if not missing.readable:
                (self.target / INDEX).unlink(missing_ok=True)
            self._copy_all(missing)
            Stamps(stamps=self._stamps()).write(self.target / _STAMPS)
            if not self._has_index():
                atomic.write_bytes(self.target / INDEX, self.source.index)
        except OSError as error:
            self._clean(missing)
            raise NotStagedError(atomic.cannot_write(self.target, error).message) from error
        except (NotStagedError, RunFailed, UsageError) as error:
            self._clean(missing)
            raise NotStagedError(str(error)) from error

    def present(self, missing: Missing) -> int | None:
        """Return how many training samples the copy has; None if it has all."""
        if missing.needed is None:
            return None
        split = missing.needed.split
        mask = present_samples(self.target, split.entry.shards)
        return None if mask is None else int(mask.sum())

    def _create_folder(self) -> None:
        """Create the folder; one that another user could change is not trusted."""
        self.target.mkdir(exist_ok=True)
        status = self.target.lstat()
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
            raise NotStagedError(f"{self.target} is not a folder of this user")
        self._delete_parts()  # left by a process that was killed

    def _delete_parts(self) -> None:
        for part in self.target.glob(f".*{_PART}"):
            part.unlink()

    def _known_stamps(self) -> dict[str, Stamp]:
        try:
            return Stamps.read(self.target / _STAMPS).stamps
        except VflopsError:
            return {}  # missing or damaged: all files are read and hashed

    def _is_whole(self, file: StoredFile, known: Mapping[str, Stamp]) -> bool:
        path = self.target / file.file
        present = present_file(path)
        try:
            stamp = _stamp(path)
            if stamp[0] != file.bytes:
                return False
            if known.get(file.file) == stamp:
                present.unlink(missing_ok=True)  # another version copied the whole file
                return True
            return not present.exists() and hash_file(path) == file.sha256
        except (OSError, FolderError):
            return False

    def _part(self, needed: NeededSamples, shard: ShardEntry, first: int) -> MissingSamples:
        """Return the needed samples that a shard lacks; if it was changed, read what it has."""
        path = self.target / shard.file
        nothing = np.zeros(shard.samples, np.bool_)
        wanted = needed.mask[first : first + shard.samples]
        try:
            stamp = _stamp(path)
            recorded = PresentSamples.read(present_file(path))
            present = recorded.mask(shard)
            if stamp[0] != shard.bytes:
                raise ValueError("its size is wrong")
            if recorded.stamp != stamp:
                present = needed.intact(path, first, present)
                self._write_intact(path, PresentSamples.of(stamp, present))
        except (OSError, FolderError, ValueError):  # absent or damaged
            return MissingSamples(shard, first, nothing, wanted, new=True)
        return MissingSamples(shard, first, present, wanted & ~present, new=False)

    def _write_intact(self, path: Path, intact: PresentSamples) -> None:
        """Record the samples of a changed shard that are intact, or leave the copy as it is."""
        try:
            intact.write(present_file(path))
        except (RunFailed, UsageError) as error:
            raise NotStagedError(str(error)) from error

    def _has_index(self) -> bool:
        try:
            return (self.target / INDEX).read_bytes() == self.source.index
        except OSError:
            return False

    def _stamps(self) -> dict[str, Stamp]:
        """Return the stamps of all files that are whole."""
        paths = [self.target / file.file for file in self.source.files]
        return {path.name: _stamp(path) for path in paths if not present_file(path).exists()}

    def _require_free_space(self, missing: Missing) -> None:
        needed, free = missing.bytes + _MARGIN_BYTES, free_bytes(self.target)
        if missing and needed > free:
            raise NotStagedError(
                f"{self.target.parent} has {quantity(free, 'B')} free, "
                f"but {quantity(needed, 'B')} are needed"
            )

    def _clean(self, missing: Missing) -> None:
        """Delete the copy, or only what was begun if other jobs may be reading it."""
        if missing.readable:
            self._delete_parts()
        else:
            shutil.rmtree(self.target, ignore_errors=True)

    def _copy_all(self, missing: Missing) -> None:
        stop = Event()
        with ThreadPoolExecutor(_FILES_AT_ONCE) as pool:
            copies = [pool.submit(self._copy, file, stop) for file in missing.files]
            if missing.needed is not None:
                needed = missing.needed
                copies += [
                    pool.submit(self._copy_samples, needed, part, stop) for part in missing.shards
                ]
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
        present_file(self.target / file.file).unlink(missing_ok=True)

    def _copy_samples(self, needed: NeededSamples, missing: MissingSamples, stop: Event) -> None:
        """Copy samples to their places in a sparse file; record them once they are on the disk."""
        path = self.target / missing.shard.file
        if missing.new:
            PresentSamples.of(NO_STAMP, missing.present).write(present_file(path))
            part = self.target / f".{path.name}{_PART}"
            with part.open("wb") as file:
                file.truncate(missing.shard.bytes)
            part.replace(path)
        with path.open("r+b", buffering=0) as copy:
            needed.copy(missing, copy.fileno(), stop)
            if stop.is_set():
                return
            os.fsync(copy.fileno())
        present = missing.present | missing.wanted
        PresentSamples.of(_stamp(path), present).write(present_file(path))


def _stamp(path: Path) -> Stamp:
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
