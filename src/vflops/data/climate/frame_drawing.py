"""Draw synthetic frames straight into the shards of packed frames."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from vflops.data.climate.frame_encoding import FrameEncoding, check_overflow
from vflops.data.climate.frame_index import FramePart, FrameShard
from vflops.data.climate.moments import Moments, frame_moments
from vflops.data.climate.scan import describe_faults
from vflops.data.climate.weather import FRAMES_PER_YEAR, WeatherRecipe, draw
from vflops.data.drawn_shards import Drawing, DrawnShard

_PIECE_PIXELS = 1 << 20

BoxRows = tuple[tuple[int, ...], ...]


class DrawnFramePart(FramePart):
    """The part of a shard of drawn frames."""

    schema_name: ClassVar[str] = "vflops.drawn-frames-part"

    boxes: tuple[BoxRows, ...]
    """The boxes of every frame: ymin, xmin, ymax, xmax, class."""


@dataclass(frozen=True)
class FrameFacts:
    """What the index and the table need from one frame."""

    moments: Moments
    boxes: BoxRows


@dataclass(frozen=True)
class FrameDrawing(Drawing[FrameFacts, DrawnFramePart]):
    """Frames of a recipe, in the encoding in which they are stored."""

    part_type = DrawnFramePart

    recipe: WeatherRecipe
    first_years: Mapping[str, int]
    """The first year of each split."""
    encoding: FrameEncoding

    @property
    def stride_bytes(self) -> int:
        """Bytes from the start of a frame to the start of the next."""
        return self.encoding.stride_bytes

    @property
    def sample_bytes(self) -> int:
        """Bytes of a frame's values."""
        return self.encoding.frame_bytes

    @property
    def header(self) -> bytes:
        """What is hashed before the values of a frame."""
        return self.encoding.header

    @property
    def piece_samples(self) -> int:
        """Number of frames that a process draws at a time."""
        return max(1, _PIECE_PIXELS // (self.recipe.height * self.recipe.width))

    def draw(
        self, split: str, start: int, count: int
    ) -> Iterator[tuple[NDArray[np.float16], list[FrameFacts]]]:
        """Yield frames one by one; their numbers count from the start of the split."""
        for position in range(start, start + count):
            years, number = divmod(position, FRAMES_PER_YEAR)
            frame = draw(self.recipe, self.first_years[split] + years, number)
            moments = frame_moments(frame.fields)
            if not moments.usable.all():
                raise ValueError(f"frame {position} of {split}: {describe_faults(moments)}")
            stored = self.encoding.encode(frame.fields)
            check_overflow(stored, frame.fields, f"frame {position} of {split}")
            yield stored, [FrameFacts(moments, tuple(map(tuple, frame.boxes.tolist())))]

    def part(
        self,
        shard: DrawnShard,
        sha256: str,
        digests: tuple[str, ...],
        facts: Sequence[FrameFacts],
    ) -> DrawnFramePart:
        """Return the part of a complete shard."""
        return DrawnFramePart(
            source_digest="",
            shard=FrameShard(
                file=shard.shard,
                frames=shard.count,
                bytes=shard.count * self.stride_bytes,
                sha256=sha256,
            ),
            digests=digests,
            frames=tuple(range(shard.start, shard.start + shard.count)),
            mean=tuple(tuple(fact.moments.mean.tolist()) for fact in facts),
            squares=tuple(tuple(fact.moments.squares.tolist()) for fact in facts),
            left_out=(),
            boxes=tuple(fact.boxes for fact in facts),
        )


def frame_moments_of(part: FramePart, encoding: FrameEncoding) -> list[Moments]:
    """Return the moments of every frame of a shard."""
    pixels = encoding.height * encoding.width
    return [
        Moments(pixels, np.array(mean), np.array(squares))
        for mean, squares in zip(part.mean, part.squares, strict=True)
    ]
