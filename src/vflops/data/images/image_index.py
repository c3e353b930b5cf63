"""The documents of packed images: ``index.json``, and the part file of a shard."""

from __future__ import annotations

from struct import Struct
from typing import ClassVar

from pydantic import Field

from vflops.data.content_hash import values_header
from vflops.data.packed_index import IndexDocument, ShardEntry, SplitEntry
from vflops.data.workspace import ShardPart
from vflops.record.files.document import Data
from vflops.record.formats.bounded_numbers import NonNegative

CHANNELS = 3
SHARD_BYTES = 1 << 28
"""The usual size of a shard: large enough to read fast, small enough to write again."""
_LABEL = Struct("<q")


def image_header(height: int, width: int) -> bytes:
    """Return what is hashed before the pixels of an image."""
    return values_header("uint8", (height, width, CHANNELS))


def label_bytes(label: int) -> bytes:
    """Return what is hashed as the annotation of an image."""
    return _LABEL.pack(label)


class SkippedImage(Data):
    """An image that was left out."""

    file: str
    reason: str


class ImageShard(ShardEntry):
    """A file of images back to back: raw 8-bit RGB, row by row."""

    images: NonNegative

    @property
    def samples(self) -> int:
        """Number of images in the shard."""
        return self.images


class ImageSplitEntry(SplitEntry):
    """The packed images of ``train`` or ``val``, in order over their shards."""

    images: NonNegative
    skipped: tuple[SkippedImage, ...] = ()
    shards: tuple[ImageShard, ...]

    @property
    def samples(self) -> int:
        """Number of images in the split."""
        return self.images


class ImageIndex(IndexDocument):
    """``index.json``: what is packed, and the hash of every file."""

    schema_name: ClassVar[str] = "vflops.packed-images"

    short_side: int = Field(ge=1, le=1 << 20)
    classes: tuple[str, ...]
    splits: dict[str, ImageSplitEntry]


class ImagePart(ShardPart):
    """What the index and the table need from a finished shard."""

    schema_name: ClassVar[str] = "vflops.packed-part"

    shard: ImageShard
    heights: tuple[int, ...]
    widths: tuple[int, ...]
    labels: tuple[int, ...]
    skipped: tuple[SkippedImage, ...]
