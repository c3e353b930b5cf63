"""What the files of packed frames say: ``index.json`` and a shard's part."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from vflops.data.climate.field_names import CHANNELS, CLASSES
from vflops.data.packed import PackedDocument, StoredFile, files_of
from vflops.data.workspace import AnyPart
from vflops.record.files.document import Data

Layout = Literal["half", "raw"]
"""How a value is stored: float16 in standard units, or float32 in the file's."""

DTYPES: dict[Layout, type[np.floating[Any]]] = {"half": np.float16, "raw": np.float32}
SPLITS = ("train", "validation", "test")
ALIGNMENT = 4096
"""Frames begin at multiples of it, so that they can be read past the page cache."""

PerChannel = Annotated[tuple[float, ...], Field(min_length=len(CHANNELS), max_length=len(CHANNELS))]


class LeftOut(Data):
    """A frame or a box that was not packed as it is in the file."""

    file: str
    frame: int
    """Counted from 0 in its file."""
    reason: str


class Shard(StoredFile):
    """A file of frames: height × width × 16 values each, at multiples of 4,096 bytes."""

    frames: int = Field(ge=0)


class Table(StoredFile):
    """The file with the boxes and labels of every frame of a split."""


class Split(Data):
    """The packed frames of ``train``, ``validation`` or ``test``, in order over their shards."""

    frames: int = Field(ge=0)
    boxes: int = Field(ge=0)
    left_out: tuple[LeftOut, ...] = ()
    """Frames that are not there."""
    mended: tuple[LeftOut, ...] = ()
    """Boxes that were cut at the edge of their frame or dropped."""
    table: Table
    shards: tuple[Shard, ...]


class FramesIndex(PackedDocument):
    """``index.json``: what is packed, in which units, and the hash of every file."""

    schema_name: ClassVar[str] = "vflops.packed-frames"

    origin: str
    """The name of the folder that the frames come from, or of the recipe."""
    synthetic: bool
    recipe: dict[str, Any] | None
    """What synthetic frames were made from."""
    layout: Layout
    height: int = Field(ge=1)
    width: int = Field(ge=1)
    channels: tuple[str, ...] = CHANNELS
    classes: tuple[str, ...] = CLASSES
    offset: PerChannel
    """A stored value s stands for s · scale + offset in the file's unit."""
    scale: PerChannel
    mean: PerChannel
    """Of the training frames, in the file's unit, before they were rounded."""
    std: PerChannel
    years: dict[str, tuple[int, ...]]
    """The years of each split."""
    reference_split: bool = False
    """Whether it is that of the rules: the last year tests, the one before validates."""
    splits: dict[str, Split]

    def files(self) -> list[StoredFile]:
        """Every file that the index names."""
        return files_of(self.splits.values())

    @property
    def frame_shape(self) -> tuple[int, int, int]:
        """Height, width, channels."""
        return self.height, self.width, len(self.channels)

    @property
    def frame_bytes(self) -> int:
        """What the values of a frame take."""
        return frame_bytes(self.height, self.width, self.layout)

    @property
    def stride_bytes(self) -> int:
        """From the start of a frame to the next."""
        return aligned(self.frame_bytes)


class Part(AnyPart):
    """What is known of a finished shard while the others are made."""

    schema_name: ClassVar[str] = "vflops.packed-frames-part"

    shard: Shard
    frames: tuple[int, ...]
    """Of the file, those that were packed."""
    mean: tuple[tuple[float, ...], ...]
    """Of every packed frame, by channel."""
    squares: tuple[tuple[float, ...], ...]
    """Sums of squared deviations from it."""
    left_out: tuple[LeftOut, ...]


def frame_bytes(height: int, width: int, layout: Layout) -> int:
    """What the values of a frame take."""
    return height * width * len(CHANNELS) * np.dtype(DTYPES[layout]).itemsize


def aligned(size: int) -> int:
    """``size`` up to the next multiple of the alignment."""
    return -(-size // ALIGNMENT) * ALIGNMENT
