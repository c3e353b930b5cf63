"""Packed folders of any kind: opened and verified through their index, read split by split."""

from __future__ import annotations

import shlex
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Generic, Self, TypeVar

import numpy as np
from numpy.typing import DTypeLike, NDArray

from vflops.data.open_shards import OpenShards
from vflops.data.packed_index import INDEX, REPAIR, IndexDocument, check_size, hash_file
from vflops.data.process_pool import OnProgress, no_progress
from vflops.data.split_table import read_table
from vflops.errors import CheckFailed, FolderError, UsageError
from vflops.record.files.document import read_json

SampleIndices = NDArray[np.integer[Any]] | Sequence[int]

_PACKED_FOR = {
    "vflops.packed-images": ("packed images", "image-classification"),
    "vflops.packed-frames": ("packed climate frames", "extreme-weather"),
}
"""What is packed, and the workload that trains on it, by the schema of the index."""

IndexType = TypeVar("IndexType", bound=IndexDocument)


class PackedFolder(ABC, Generic[IndexType]):
    """A folder of packed samples; a subclass defines the kind of sample and how to read it."""

    samples: ClassVar[str]
    """What the samples are called: ``images``."""
    index_type: ClassVar[type[IndexDocument]]

    def __init__(self, path: Path, index: IndexType) -> None:
        self.path = path
        self.index = index

    @classmethod
    def open(cls, path: Path) -> Self:
        """Open the packed data in ``path`` and check file names and sizes, but not contents."""
        require_packed(path, f"packed {cls.samples}")
        data = read_json(path / INDEX)
        _check_kind(path, str(data.get("schema")), cls.index_type.schema_name)
        index: Any = cls.index_type.parse(data, path / INDEX)
        folder = cls(path, index)
        folder.check_index()
        for file in folder.index.files():
            check_size(path, file)
        return folder

    def check_index(self) -> None:
        """Raise ``FolderError`` if the index is inconsistent."""
        for name, split in self.index.splits.items():
            if split.samples != sum(shard.samples for shard in split.shards):
                raise FolderError(
                    f"{self.path / INDEX}: the shards of {name} do not have {split.samples} "
                    f"{self.samples} in total",
                    hint=REPAIR,
                )

    @abstractmethod
    def split(self, name: str) -> PackedSplit:
        """Return the samples of a split; raise ``UsageError`` if there is no such split."""

    @cached_property
    def fingerprint(self) -> str:
        """The SHA-256 of ``index.json``, which contains the hash of every other file."""
        return hash_file(self.path / INDEX)

    def verify(self, on_progress: OnProgress = no_progress) -> int:
        """Hash every file and return the bytes read; raise ``CheckFailed`` naming damaged files."""
        files = self.index.files()
        total = sum(file.bytes for file in files)
        done = 0

        def count(block: int, _: int) -> None:
            nonlocal done
            done += block
            on_progress(done, total)

        damaged = [
            file.file for file in files if hash_file(self.path / file.file, count) != file.sha256
        ]
        if damaged:
            raise CheckFailed(
                f"{self.path}: {len(damaged)} of {len(files)} files differ from what was packed: "
                + ", ".join(damaged),
                hint=REPAIR,
            )
        return total


class PackedSplit:
    """One split of a packed folder: its table in memory, its shards open for reading."""

    def __init__(
        self,
        folder: PackedFolder[Any],
        name: str,
        columns: Mapping[str, tuple[DTypeLike, tuple[int, ...]]],
    ) -> None:
        """Open the split ``name``; ``columns`` has the type and shape of one row of each array."""
        splits = folder.index.splits
        if name not in splits:
            raise UsageError(
                f"{folder.path} has no split {name!r}", hint=f"it has {', '.join(splits)}"
            )
        self.name = name
        self.fingerprint = folder.fingerprint
        self.entry = splits[name]
        self.table_path = folder.path / self.entry.table.file
        self.table = read_table(
            self.table_path,
            folder.samples,
            {
                column: (dtype, (self.entry.samples, *shape))
                for column, (dtype, shape) in columns.items()
            },
        )
        counts = [shard.samples for shard in self.entry.shards]
        self.shard_of = np.repeat(np.arange(len(counts)), counts)
        """The number of the shard that holds each sample."""
        self.shards = OpenShards(folder.path, self.entry.shards)

    def __len__(self) -> int:
        return len(self.shard_of)


def require_packed(path: Path, kind: str) -> None:
    """Raise ``UsageError`` if ``path`` has no index and so is not a folder of ``kind``."""
    if (path / INDEX).is_file():
        return
    what = f"it has no {INDEX}" if path.is_dir() else "it does not exist"
    hint = "create one: vflops data pack DIR"
    real = path.resolve()
    if real.with_name(f"{real.name}.partial").is_dir():
        hint = "packing it did not finish: run the same vflops data pack command again"
    raise UsageError(f"{path} is not a folder of {kind}: {what}", hint=hint)


def _check_kind(path: Path, tag: str, wanted: str) -> None:
    """Raise ``UsageError`` if ``tag``, the schema of the index, belongs to another workload."""
    actual = tag.rpartition("/")[0]
    if actual in _PACKED_FOR and wanted in _PACKED_FOR and actual != wanted:
        (what, other), (needed, workload) = _PACKED_FOR[actual], _PACKED_FOR[wanted]
        raise UsageError(
            f"{path} holds {what}, but {workload} needs {needed}",
            hint=f"give a folder of {needed}, or train on this one: vflops run {other} "
            f"--data {shlex.quote(str(path))} --set target=QUALITY",
        )
