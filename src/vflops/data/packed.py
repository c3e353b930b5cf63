"""What all packed folders share: an index with the hash of every file, opened and verified alike.

DEST/
  index.json        what is inside, and the hash of every file
  <split>-00000.bin samples back to back
  <split>.npz       what is known of every sample
  packing.json      what made it, to recognise it by; not needed for reading
"""

from __future__ import annotations

import hashlib
import json
import resource
import shlex
import zipfile
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import DTypeLike, NDArray
from pydantic import Field

from vflops.data.process_pool import OnProgress, silent
from vflops.errors import CheckFailed, FolderError, UsageError
from vflops.record.files.document import Data, Document, read_json

INDEX = "index.json"
PACKING = "packing.json"
MARK = "synthetic.json"
"""In a folder of images or years: what they were drawn from; without it they are real."""
REPAIR = "copy the folder again, or pack it again: vflops data pack DIR"

_BLOCK_BYTES = 1 << 22
_NO_TABLE = (
    *(OSError, ValueError, KeyError, EOFError, RuntimeError),
    *(zipfile.BadZipFile, zlib.error),
)
"""What numpy raises for a file of arrays that is damaged: it depends on the byte."""
_PACKED_FOR = {
    "vflops.packed-images": ("packed images", "image-classification"),
    "vflops.packed-frames": ("packed climate frames", "extreme-weather"),
}
"""By the schema of an index: what is packed, and the workload that trains on it."""
_SPARE_FILES = 256
"""Open files that the rest of a program needs beside the shards."""


class StoredFile(Data):
    """A file of a packed folder."""

    file: str
    bytes: int = Field(ge=0)
    sha256: str


class Packing(Document):
    """``packing.json``: which packing made the folder, so that it can be gone on with."""

    schema_name: ClassVar[str] = "vflops.packing"

    source: str
    """The folder of the data, or the name of a recipe."""
    settings: dict[str, Any]
    """All that decides the bytes besides the source."""
    identity: str | None = None
    """A digest of the source's file names, sizes and times, and of the settings; known at the
    end. It is kept out of the index, so that a copy of the same data has the same index."""


class SplitFiles(Protocol):
    """The files of a split, as an index has them."""

    @property
    def table(self) -> StoredFile:
        """What is known of every sample."""

    @property
    def shards(self) -> Sequence[StoredFile]:
        """The samples."""


class PackedDocument(Document, ABC):
    """An ``index.json`` of any kind: its splits name all files."""

    @abstractmethod
    def files(self) -> list[StoredFile]:
        """Every file that the index names."""


def files_of(splits: Iterable[SplitFiles]) -> list[StoredFile]:
    """Every file of some splits."""
    return [file for split in splits for file in (split.table, *split.shards)]


def shard_name(split: str, number: int) -> str:
    """The file name of a shard."""
    return f"{split}-{number:05d}.bin"


def table_name(split: str) -> str:
    """The file name of a split's table."""
    return f"{split}.npz"


def digest(parts: Any) -> str:
    """The SHA-256 of plain data."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def hash_file(path: Path, on_bytes: OnProgress | None = None) -> str:
    """The SHA-256 of a large file, read in blocks; ``on_bytes`` gets (block, whole file)."""
    hashed = hashlib.sha256()
    try:
        size = path.stat().st_size
        with path.open("rb", buffering=0) as file:
            while block := file.read(_BLOCK_BYTES):
                hashed.update(block)
                if on_bytes is not None:
                    on_bytes(len(block), size)
    except OSError as error:
        raise FolderError(f"cannot read {path}: {error.strerror or error}") from error
    return hashed.hexdigest()


def drawn_from(folder: Path) -> dict[str, Any] | None:
    """The recipe of a folder of data that was drawn; None for real data."""
    return read_json(folder / MARK) if (folder / MARK).is_file() else None


IndexType = TypeVar("IndexType", bound=PackedDocument)


class PackedFolder(ABC, Generic[IndexType]):
    """A folder of packed samples; a subclass says of what kind, and how they are read."""

    kind: ClassVar[str]
    """In words: ``packed images``."""
    index_type: ClassVar[type[PackedDocument]]

    def __init__(self, path: Path, index: IndexType) -> None:
        self.path = path
        self.index = index

    @classmethod
    def open(cls, path: Path) -> Self:
        """What is packed in ``path``; files and sizes are checked, contents are not."""
        refuse_unpacked(path, cls.kind)
        data = read_json(path / INDEX)
        _refuse_another_kind(path, str(data.get("schema")), cls.index_type.schema_name)
        index: Any = cls.index_type.parse(data, path / INDEX)
        folder = cls(path, index)
        folder.check_index()
        for file in folder.index.files():
            check_size(path, file)
        return folder

    @abstractmethod
    def check_index(self) -> None:
        """Refuse an index that contradicts itself."""

    @cached_property
    def fingerprint(self) -> str:
        """The SHA-256 of ``index.json``, which has that of every other file."""
        return hash_file(self.path / INDEX)

    def verify(self, on_progress: OnProgress = silent) -> int:
        """Hash every file: the bytes that were read, or an error naming each damaged file."""
        files = self.index.files()
        total = sum(file.bytes for file in files)
        done = 0

        def count(block: int, _: int) -> None:
            nonlocal done
            done += block
            on_progress(done, total)

        bad = [
            file.file for file in files if hash_file(self.path / file.file, count) != file.sha256
        ]
        if bad:
            raise CheckFailed(
                f"{self.path}: {len(bad)} of {len(files)} files are not what was packed: "
                + ", ".join(bad),
                hint=REPAIR,
            )
        return total


def refuse_unpacked(path: Path, kind: str) -> None:
    """An error where ``path`` has no index: it is no folder of packed data."""
    if (path / INDEX).is_file():
        return
    what = "it has no index.json" if path.is_dir() else "there is no such folder"
    hint = "make one: vflops data pack DIR"
    real = path.resolve()
    if real.with_name(f"{real.name}.partial").is_dir():
        hint = "its packing did not end: give the same vflops data pack again"
    raise UsageError(f"{path} is no folder of {kind}: {what}", hint=hint)


def _refuse_another_kind(path: Path, tag: str, wanted: str) -> None:
    """An error where ``path``, whose index is a ``tag``, is packed for another workload."""
    held = tag.rpartition("/")[0]
    if held in _PACKED_FOR and wanted in _PACKED_FOR and held != wanted:
        (what, other), (needed, workload) = _PACKED_FOR[held], _PACKED_FOR[wanted]
        raise UsageError(
            f"{path} holds {what}, {workload} needs {needed}",
            hint=f"give a folder of these, or train on what it holds: vflops run {other} "
            f"--data {shlex.quote(str(path))} --set target=QUALITY",
        )


def check_size(folder: Path, file: StoredFile) -> None:
    """Refuse a file that is missing or has another size than the index says."""
    path = folder / file.file
    if Path(file.file).name != file.file or "\0" in file.file:
        raise FolderError(f"{folder / INDEX} names {file.file!r}, which is no plain file name")
    try:
        size = path.stat().st_size
    except FileNotFoundError as error:
        raise FolderError(f"{path} is missing", hint=REPAIR) from error
    except OSError as error:
        raise FolderError(f"cannot read {path}: {error.strerror or error}") from error
    if size != file.bytes:
        raise FolderError(
            f"{path} has {size} bytes, {INDEX} says {file.bytes}: it is damaged", hint=REPAIR
        )


def read_table(
    path: Path, of: str, columns: Mapping[str, tuple[DTypeLike, tuple[int, ...]]]
) -> dict[str, NDArray[Any]]:
    """The arrays of a split's table by name, each of the type and shape that is expected."""
    try:
        with np.load(path, allow_pickle=False) as file:
            table = {name: np.asarray(file[name]) for name in columns}
    except _NO_TABLE as error:
        raise FolderError(f"{path} is not a table of {of}: {error}", hint=REPAIR) from error
    for name, column in table.items():
        kind, shape = columns[name]
        if column.dtype != kind or column.shape != shape:
            raise FolderError(
                f"{path}: {name} is {column.dtype}{list(column.shape)}, "
                f"expected {np.dtype(kind)}{list(shape)}",
                hint=REPAIR,
            )
    return table


def allow_open_files(shards: int) -> None:
    """Raise the limit of open files: each shard is one, 1,024 often are allowed."""
    needed = shards + _SPARE_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return
    allowed = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    if allowed < needed:
        raise UsageError(
            f"{shards} shards need {needed} open files, this process may have {hard}",
            hint="raise the limit: ulimit -n, or ask who runs the system",
        )
