"""The documents of packed images: ``index.json``, and the part file of a shard."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer

from vflops.data.packed_index import IndexDocument, ShardEntry, SplitEntry
from vflops.data.workspace import ShardPart
from vflops.record.files.document import Data
from vflops.record.formats.job import Duplicates

CHANNELS = 3
SHARD_BYTES = 1 << 28
"""The usual size of a shard: large enough to read fast, small enough to write again."""


class SkippedImage(Data):
    """An image that was left out."""

    file: str
    reason: str


class ImageShard(ShardEntry):
    """A file of images back to back: raw 8-bit RGB, row by row."""

    images: int = Field(ge=0)

    @property
    def samples(self) -> int:
        """Number of images in the shard."""
        return self.images


class ImageSplitEntry(SplitEntry):
    """The packed images of ``train`` or ``val``, in order over their shards."""

    images: int = Field(ge=0)
    skipped: tuple[SkippedImage, ...] = ()
    shards: tuple[ImageShard, ...]

    @property
    def samples(self) -> int:
        """Number of images in the split."""
        return self.images


_NOT_COMPARED = ("duplicates", None)


class ImageIndex(IndexDocument):
    """``index.json``: what is packed, and the hash of every file."""

    schema_name: ClassVar[str] = "vflops.packed-images"

    short_side: int = Field(ge=1)
    classes: tuple[str, ...]
    splits: dict[str, ImageSplitEntry]
    duplicates: Duplicates | None = None
    """None if the images were not compared: they are synthetic, or an older version packed them."""

    @model_serializer(mode="wrap")
    def _omit_what_was_not_compared(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave ``duplicates`` out if it is None, so that synthetic data keeps its fingerprint."""
        fields: dict[str, Any] = dump(self)
        return {name: value for name, value in fields.items() if (name, value) != _NOT_COMPARED}


class ImagePart(ShardPart):
    """What the index and the table need from a finished shard."""

    schema_name: ClassVar[str] = "vflops.packed-part"

    shard: ImageShard
    heights: tuple[int, ...]
    widths: tuple[int, ...]
    labels: tuple[int, ...]
    skipped: tuple[SkippedImage, ...]
    contents: tuple[str, ...] = ()
    """A digest of the file of each image; empty for images that are not compared."""
