"""What the files of packed images say: ``index.json``, ``packing.json`` and a shard's part."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, ClassVar

from pydantic import Field

from vflops.data.images.workers import OnProgress
from vflops.errors import FolderError
from vflops.record.schema import Data, Document, read_json

INDEX = "index.json"
PACKING = "packing.json"
MARK = "synthetic.json"
"""In an image folder: what its images were drawn from; without it they are real."""
CHANNELS = 3
SHARD_BYTES = 1 << 28
"""About what a shard holds: long enough to read in one go, short enough to make again."""

_BLOCK_BYTES = 1 << 22


class Skipped(Data):
    """An image that was left out."""

    file: str
    reason: str


class Shard(Data):
    """A file of images back to back: raw 8-bit RGB, row by row."""

    file: str
    images: int = Field(ge=0)
    bytes: int = Field(ge=0)
    sha256: str


class Table(Data):
    """The file with the place, size and label of every image of a split."""

    file: str
    bytes: int = Field(ge=0)
    sha256: str


class Split(Data):
    """The packed images of ``train`` or ``val``, in order over their shards."""

    images: int = Field(ge=0)
    skipped: tuple[Skipped, ...] = ()
    table: Table
    shards: tuple[Shard, ...]


class PackedIndex(Document):
    """``index.json``: what is packed, and the hash of every file."""

    schema_name: ClassVar[str] = "vflops.packed-images"

    origin: str
    """The name of the folder that the images come from, or of the recipe."""
    synthetic: bool
    recipe: dict[str, Any] | None
    """What synthetic images were made from: the same recipe gives the same bytes."""
    short_side: int = Field(ge=1)
    classes: tuple[str, ...]
    splits: dict[str, Split]


class Packing(Document):
    """``packing.json``: which packing made the folder, so that it can be gone on with."""

    schema_name: ClassVar[str] = "vflops.packing"

    source: str
    """The folder of images, or the name of a recipe."""
    settings: dict[str, Any]
    """All that decides the bytes besides the source."""
    identity: str | None = None
    """A digest of the source's file names, sizes and times, and of the settings; known at the
    end. It is kept out of the index, so that a copy of the same images has the same index."""


class Part(Document):
    """What is known of a finished shard while the others are made."""

    schema_name: ClassVar[str] = "vflops.packed-part"

    source_digest: str
    """Of names, sizes, times and labels of the images that it was made from."""
    shard: Shard
    heights: tuple[int, ...]
    widths: tuple[int, ...]
    labels: tuple[int, ...]
    skipped: tuple[Skipped, ...]


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


def files_of(splits: Iterable[Split]) -> list[Table | Shard]:
    """Every file that an index names."""
    files: list[Table | Shard] = []
    for split in splits:
        files += [split.table, *split.shards]
    return files


def drawn_from(folder: Path) -> dict[str, Any] | None:
    """The recipe of an image folder that was drawn; None for real images."""
    return read_json(folder / MARK) if (folder / MARK).is_file() else None
