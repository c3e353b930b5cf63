"""The documents of packed frames: ``index.json``, and the part file of a shard."""

from __future__ import annotations

from struct import Struct
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from vflops.data.climate.field_names import CHANNELS, CLASSES
from vflops.data.content_hash import values_header
from vflops.data.packed_index import IndexDocument, ShardEntry, SplitEntry
from vflops.data.workspace import ShardPart
from vflops.record.files.document import Data
from vflops.record.formats.bounded_numbers import NonNegative

Layout = Literal["half", "raw"]
"""How a value is stored: as float16 in standardised units, or as float32 in the file's units."""

DTYPES: dict[Layout, type[np.floating[Any]]] = {"half": np.float16, "raw": np.float32}
SPLITS = ("train", "validation", "test")
ALIGNMENT = 4096
"""Frames start at multiples of this many bytes, so that direct I/O can read them."""

_BOX = Struct("<4fq")

PerChannel = Annotated[tuple[float, ...], Field(min_length=len(CHANNELS), max_length=len(CHANNELS))]


class LeftOut(Data):
    """A frame or a box that was not packed as it is in the file."""

    file: str
    frame: int
    """Counted from 0 in its file."""
    reason: str


class FrameShard(ShardEntry):
    """A file of frames: height × width × 16 values each, at multiples of 4,096 bytes."""

    frames: NonNegative

    @property
    def samples(self) -> int:
        """Number of frames in the shard."""
        return self.frames


class FrameSplitEntry(SplitEntry):
    """The packed frames of ``train``, ``validation`` or ``test``, in order over their shards."""

    frames: NonNegative
    boxes: NonNegative
    left_out: tuple[LeftOut, ...] = ()
    """Frames that were not packed."""
    mended: tuple[LeftOut, ...] = ()
    """Boxes that were clipped at the edge of their frame or dropped."""
    shards: tuple[FrameShard, ...]

    @property
    def samples(self) -> int:
        """Number of frames in the split."""
        return self.frames


class FrameIndex(IndexDocument):
    """``index.json``: what is packed, in which units, and the hash of every file."""

    schema_name: ClassVar[str] = "vflops.packed-frames"

    layout: Layout
    height: int = Field(ge=1, le=1 << 20)
    width: int = Field(ge=1, le=1 << 20)
    channels: tuple[str, ...] = CHANNELS
    classes: tuple[str, ...] = CLASSES
    offset: PerChannel
    """A stored value s stands for s · scale + offset in the file's unit."""
    scale: PerChannel
    mean: PerChannel
    """Mean of the training frames, in the file's unit, before rounding."""
    std: PerChannel
    years: dict[str, tuple[int, ...]]
    """The years of each split."""
    reference_split: bool = False
    """Whether the split is that of the rules: the last year for testing, the one before it for
    validation."""
    splits: dict[str, FrameSplitEntry]

    @property
    def frame_shape(self) -> tuple[int, int, int]:
        """Height, width, channels."""
        return self.height, self.width, len(self.channels)

    @property
    def frame_bytes(self) -> int:
        """Size of a frame's values in bytes, without padding."""
        return frame_bytes(self.height, self.width, self.layout)

    @property
    def stride_bytes(self) -> int:
        """Bytes from the start of a frame to the start of the next."""
        return align(self.frame_bytes)


class FramePart(ShardPart):
    """What the index and the table need from a finished shard."""

    schema_name: ClassVar[str] = "vflops.packed-frames-part"

    shard: FrameShard
    frames: tuple[int, ...]
    """Numbers of the packed frames in their file."""
    mean: tuple[tuple[float, ...], ...]
    """Mean of every packed frame, by channel."""
    squares: tuple[tuple[float, ...], ...]
    """Sums of squared deviations from the mean."""
    left_out: tuple[LeftOut, ...]


def frame_bytes(height: int, width: int, layout: Layout) -> int:
    """Return the size of a frame's values in bytes, without padding."""
    return height * width * len(CHANNELS) * np.dtype(DTYPES[layout]).itemsize


def frame_header(height: int, width: int, layout: Layout) -> bytes:
    """Return what is hashed before the values of a frame."""
    return values_header(np.dtype(DTYPES[layout]).name, (height, width, len(CHANNELS)))


def boxes_bytes(boxes: NDArray[np.float32], labels: NDArray[np.int64]) -> bytes:
    """Return what is hashed as the annotation of a frame: its boxes with their labels, sorted."""
    rows = zip(boxes.tolist(), labels.tolist(), strict=True)
    packed = (_BOX.pack(*box, label) for box, label in rows if label >= 0)
    return b"".join(sorted(packed))


def align(size: int) -> int:
    """Round ``size`` up to a multiple of the alignment."""
    return -(-size // ALIGNMENT) * ALIGNMENT
