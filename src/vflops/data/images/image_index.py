"""What the files of packed images say: ``index.json``, ``packing.json`` and a shard's part."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import Field

from vflops.data.packed import MARK as MARK
from vflops.data.packed import PackedDocument, StoredFile
from vflops.data.packed import digest as digest  # for those who know images alone
from vflops.data.packed import files_of as files_of
from vflops.data.workspace import AnyPart
from vflops.record.files.document import Data

CHANNELS = 3
SHARD_BYTES = 1 << 28
"""About what a shard holds: long enough to read in one go, short enough to make again."""


class Skipped(Data):
    """An image that was left out."""

    file: str
    reason: str


class Shard(StoredFile):
    """A file of images back to back: raw 8-bit RGB, row by row."""

    images: int = Field(ge=0)


class Table(StoredFile):
    """The file with the place, size and label of every image of a split."""


class Split(Data):
    """The packed images of ``train`` or ``val``, in order over their shards."""

    images: int = Field(ge=0)
    skipped: tuple[Skipped, ...] = ()
    table: Table
    shards: tuple[Shard, ...]


class PackedIndex(PackedDocument):
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

    def files(self) -> list[StoredFile]:
        """Every file that the index names."""
        return files_of(self.splits.values())


class Part(AnyPart):
    """What is known of a finished shard while the others are made."""

    schema_name: ClassVar[str] = "vflops.packed-part"

    shard: Shard
    heights: tuple[int, ...]
    widths: tuple[int, ...]
    labels: tuple[int, ...]
    skipped: tuple[Skipped, ...]
