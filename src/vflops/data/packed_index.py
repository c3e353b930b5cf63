"""The documents of a packed folder of any kind: ``index.json`` and ``packing.json``.

DEST/
  index.json        what is packed, and the hash of every file
  <split>-00000.bin samples back to back
  <split>.npz       one row per sample (text: per document): labels, sizes, boxes, starts
  <split>.digests   the SHA-256 of each sample's values, 32 bytes each
  packing.json      source and settings of the packing, for resuming; not needed for reading
"""

from __future__ import annotations

import hashlib
import json
from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from pydantic import SerializerFunctionWrapHandler, model_serializer

from vflops.data.process_pool import OnProgress
from vflops.errors import FolderError
from vflops.record.files import atomic
from vflops.record.files.document import Data, Document
from vflops.record.files.regular_file import open_regular
from vflops.record.formats.bounded_numbers import NonNegative
from vflops.record.formats.job import Duplicates
from vflops.record.formats.recorded_names import RecordedName

INDEX = "index.json"
PACKING = "packing.json"
REPAIR = "copy the folder again, or pack it again: vflops data pack DIR"

_BLOCK_BYTES = 1 << 22
_OPTIONAL = ("duplicates", "contents")


class StoredFile(Data):
    """A file of a packed folder."""

    file: RecordedName
    bytes: NonNegative
    sha256: str


class ShardEntry(StoredFile):
    """The index entry of a shard."""

    @property
    @abstractmethod
    def samples(self) -> int:
        """Number of samples in the shard."""


class SplitEntry(Data):
    """The index entry of a split, whose samples are in order over its shards."""

    table: StoredFile
    shards: tuple[ShardEntry, ...]

    @property
    @abstractmethod
    def samples(self) -> int:
        """Number of samples in the split."""

    @property
    def rows(self) -> int:
        """Number of rows of the table: one per sample, unless the kind of data says otherwise."""
        return self.samples


class SplitContents(Data):
    """What identifies the samples of a split, whatever their order, names and files."""

    sha256: str
    """The content hash."""
    digests: StoredFile
    """The SHA-256 of the values of every sample, in order."""


class IndexDocument(Document):
    """``index.json`` of any kind of data."""

    origin: str
    """The name of the folder that the samples come from, or of the recipe."""
    synthetic: bool
    recipe: dict[str, Any] | None
    """The recipe of synthetic samples, which always gives the same bytes; None for real data."""
    splits: Mapping[str, SplitEntry]
    duplicates: Duplicates | None = None
    """None if samples were not compared: they are synthetic, or an older version packed them."""
    contents: dict[str, SplitContents] | None = None
    """By split; None if an older version packed the data."""

    @model_serializer(mode="wrap")
    def _omit_what_is_absent(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out optional fields that are None, so that synthetic data keeps its fingerprint."""
        fields: dict[str, Any] = dump(self)
        return {k: v for k, v in fields.items() if not (k in _OPTIONAL and v is None)}

    def files(self) -> list[StoredFile]:
        """Return every file that the index names."""
        files = [file for split in self.splits.values() for file in (split.table, *split.shards)]
        return files + [split.digests for split in (self.contents or {}).values()]


class PackingRecord(Document):
    """``packing.json``: what produced the folder, so that the same command can resume."""

    schema_name: ClassVar[str] = "vflops.packing"

    source: str
    """The folder of the data, or the name of a recipe."""
    settings: dict[str, Any]
    """Everything besides the source that determines the packed bytes."""
    identity: str | None = None
    """A digest of the source's file names, sizes and times, and of the settings; set when packing
    is finished. It is not in the index, so that copies of the same data have the same index."""


def shard_name(split: str, number: int) -> str:
    """Return the file name of a shard."""
    return f"{split}-{number:05d}.bin"


def table_name(split: str) -> str:
    """Return the file name of a split's table."""
    return f"{split}.npz"


def index_fingerprint(index: Mapping[str, Any]) -> str:
    """Return the SHA-256 that identifies packed data, from the JSON object in its ``index.json``.

    It covers the hashes of shards and tables. The name of the folder that real data comes from is
    left out, so that everyone who packs the same data gets the same fingerprint. The contents are
    left out because they follow from the shards; data packed before there were any keeps its
    fingerprint.
    """
    left_out = {"contents"} if index.get("synthetic") else {"contents", "origin"}
    fields = {name: value for name, value in index.items() if name not in left_out}
    try:
        return hashlib.sha256(atomic.json_text(fields).encode()).hexdigest()
    except ValueError as error:  # an infinite number, which this version never writes
        raise FolderError(f"{INDEX} cannot be identified: {error}", hint=REPAIR) from error


def digest(parts: Any) -> str:
    """Return the SHA-256 of plain data."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def hash_file(path: Path, on_bytes: OnProgress | None = None) -> str:
    """Return the SHA-256 of a large file; ``on_bytes`` gets the sizes of each block and file."""
    hashed = hashlib.sha256()
    try:
        size = path.stat().st_size
        with open_regular(path) as file:
            while block := file.read(_BLOCK_BYTES):
                hashed.update(block)
                if on_bytes is not None:
                    on_bytes(len(block), size)
    except OSError as error:
        raise cannot_read(path, error) from error
    return hashed.hexdigest()


def check_size(folder: Path, file: StoredFile) -> None:
    """Raise ``FolderError`` if a file is missing or its size differs from the index."""
    path = folder / file.file
    try:
        size = path.stat().st_size
    except FileNotFoundError as error:
        raise FolderError(f"{path} is missing", hint=REPAIR) from error
    except OSError as error:
        raise cannot_read(path, error) from error
    if size != file.bytes:
        raise FolderError(
            f"{path} has {size} bytes, but {INDEX} says {file.bytes}: the file is damaged",
            hint=REPAIR,
        )


def cannot_read(path: Path, error: OSError) -> FolderError:
    """Return the error for a file of packed data that cannot be read."""
    return FolderError(f"cannot read {path}: {error.strerror or error}")
