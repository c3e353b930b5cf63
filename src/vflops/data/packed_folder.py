"""Packed folders of any kind: opened and verified through their index, read split by split."""

from __future__ import annotations

import shlex
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Generic, Self, TypeVar

import numpy as np
from numpy.typing import DTypeLike, NDArray

from vflops.data.content_check import ContentCheck
from vflops.data.content_hash import (
    as_digests,
    content_hash,
    read_digests,
    values_digest,
    write_digests,
)
from vflops.data.open_shards import OpenShards
from vflops.data.packed_index import (
    INDEX,
    REPAIR,
    IndexDocument,
    check_size,
    hash_file,
    index_fingerprint,
)
from vflops.data.present_samples import (
    is_partial,
    present_file,
    present_samples,
    require_present,
)
from vflops.data.process_pool import OnProgress, no_progress
from vflops.data.split_table import read_table
from vflops.errors import CheckFailed, FolderError, UsageError
from vflops.record.files.document import read_json

SampleIndices = NDArray[np.integer[Any]] | Sequence[int]

_PACKED_FOR = {
    "vflops.packed-images": ("packed images", "image-classification"),
    "vflops.packed-frames": ("packed climate frames", "extreme-weather"),
    "vflops.packed-text": ("packed text", "language-model"),
}
"""What is packed, and the workload that trains on it, by the schema of the index."""

IndexType = TypeVar("IndexType", bound=IndexDocument)


@dataclass(frozen=True)
class SampleExtents:
    """Where the samples of a split lie in their shards."""

    offset: NDArray[np.int64]
    bytes: NDArray[np.int64]
    """Sizes of the values, which are hashed."""
    stride: NDArray[np.int64]
    """Bytes of the values and of the padding behind them."""


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
        """The hash that identifies the data, whatever the names of its folders."""
        return index_fingerprint(read_json(self.path / INDEX))

    @property
    def contents(self) -> dict[str, str]:
        """The content hash of every split; empty if an older version packed the data."""
        return {name: split.sha256 for name, split in (self.index.contents or {}).items()}

    @property
    def is_partial(self) -> bool:
        """Whether the folder is a node's copy that lacks samples."""
        return is_partial(self.path)

    def verify(self, on_progress: OnProgress = no_progress) -> int:
        """Hash every file and return the bytes read; raise ``CheckFailed`` naming damaged files.

        Shards that lack samples are left out: only ``verify_contents`` can check them.
        """
        files = self.index.files()
        if self.is_partial:
            files = [file for file in files if not present_file(self.path / file.file).exists()]
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

    def verify_contents(self, on_progress: OnProgress = no_progress) -> None:
        """Compare every sample that is present with its digest, and splits with content hashes.

        Raise ``CheckFailed`` or ``FolderError`` if they differ.
        """
        splits = [self.split(name) for name in self.contents]
        total, done = sum(map(len, splits)), 0
        for split in splits:
            split.compare_contents()
            for number in range(len(split)):
                if split.present is None or split.present[number]:
                    split.stored_values(number)
                done += 1
                on_progress(done, total)
            if split.content_hash() != self.contents[split.name]:
                raise CheckFailed(
                    f"{self.path / INDEX} has a content hash of {split.name} that is not that of "
                    f"its {self.samples}",
                    hint=REPAIR,
                )

    def add_contents(self, on_progress: OnProgress = no_progress) -> Self:
        """Write the digests that data of an older version lacks; return the data with them.

        Call ``verify`` first: the digests are those of the samples as they are now.
        """
        splits = [self.split(name) for name in self.index.splits]
        total, done = sum(map(len, splits)), 0
        contents = {}
        for split in splits:
            digests = []
            for number in range(len(split)):
                values = split.stored_values(number)
                digests.append(values_digest(split.header(number), values.data).hex())
                done += 1
                on_progress(done, total)
            contents[split.name] = write_digests(
                self.path, split.name, as_digests(digests), split.annotations()
            )
        self.index.model_copy(update={"contents": contents}).write(self.path / INDEX)
        return type(self).open(self.path)


class PackedSplit(ABC):
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
                column: (dtype, (self.entry.rows, *shape))
                for column, (dtype, shape) in columns.items()
            },
        )
        counts = [shard.samples for shard in self.entry.shards]
        self.shard_of = np.repeat(np.arange(len(counts)), counts)
        """The number of the shard that holds each sample."""
        self.shards = OpenShards(folder.path, self.entry.shards)
        self.check: ContentCheck | None = None
        """Compares samples as they are read; None if that was not asked for or is impossible."""
        self.present = present_samples(folder.path, self.entry.shards)
        """Which samples a node's copy has; None for all."""
        self._folder = folder

    def __len__(self) -> int:
        return len(self.shard_of)

    def extents(self) -> SampleExtents | None:
        """Return where the samples lie; None if they cannot be copied singly."""
        return None

    def require_present(self, numbers: NDArray[np.int64]) -> None:
        """Raise ``FolderError`` if a sample is absent: its bytes would be zeros."""
        require_present(self.present, numbers, f"{self.name} in {self._folder.path}")

    @abstractmethod
    def header(self, number: int) -> bytes:
        """Return what is hashed before the values of a sample."""

    @abstractmethod
    def stored_values(self, number: int) -> NDArray[np.uint8]:
        """Return the bytes of one sample as they are stored."""

    @abstractmethod
    def annotations(self) -> Iterable[bytes]:
        """Yield what is hashed as the annotation of each sample: the label, or the boxes."""

    def compare_contents(self) -> Self:
        """Compare samples with their digests from now on, when they are first read.

        Raise ``FolderError`` if the tables differ from the index. Data of an older version has no
        digests; its samples are not compared.
        """
        contents = (self._folder.index.contents or {}).get(self.name)
        if contents is not None and self.check is None:
            if hash_file(self.table_path) != self.entry.table.sha256:
                raise FolderError(f"{self.table_path} differs from what was packed", hint=REPAIR)
            digests = read_digests(self._folder.path, contents, len(self))
            self.check = ContentCheck(f"{self.name} in {self._folder.path}", digests)
        return self

    def content_hash(self) -> str:
        """Return the content hash that follows from the tables; raise ``ValueError`` without."""
        if self.check is None:
            raise ValueError(f"the samples of {self.name} are not compared with their digests")
        return content_hash(self.check.digests, self.annotations())


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
