"""How fields become stored values, and the shard files that hold them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vflops.data.climate.field_names import CHANNELS
from vflops.data.climate.frame_index import (
    DTYPES,
    FrameShard,
    Layout,
    align,
    frame_bytes,
    frame_header,
)
from vflops.data.climate.moments import FILL
from vflops.data.content_hash import hash_shard
from vflops.data.new_file import NewFile
from vflops.errors import UsageError

SHARD_BYTES = 1 << 30
"""Maximum size of a shard: few files hold decades of frames, and each is quick to rewrite."""

_BAND_VALUES = 1 << 17
"""Number of values that are transposed at a time, so that they stay in the cache."""

_LEAST_NORMAL, _INFINITE_FROM = np.float32(2.0**-14), np.float32(65520.0)
"""Values of float16 in between have 11 significant bits."""
_INFINITY_BITS = 0x7C00
"""The bits of infinity in float16; those of NaN are larger."""


@dataclass(frozen=True)
class FrameEncoding:
    """How fields become stored values: (value - offset) / scale, channels last."""

    height: int
    width: int
    layout: Layout
    offset: NDArray[np.float64]
    scale: NDArray[np.float64]

    @property
    def frame_bytes(self) -> int:
        """Size of a frame's values in bytes, without padding."""
        return frame_bytes(self.height, self.width, self.layout)

    @property
    def stride_bytes(self) -> int:
        """Bytes from the start of a frame to the start of the next."""
        return align(self.frame_bytes)

    @property
    def header(self) -> bytes:
        """What is hashed before the values of a frame."""
        return frame_header(self.height, self.width, self.layout)

    @property
    def frames_per_shard(self) -> int:
        """Number of frames that fit into a shard, at least one."""
        return max(1, SHARD_BYTES // self.stride_bytes)

    def encode(self, fields: NDArray[Any]) -> NDArray[Any]:
        """Return ``fields`` (16, rows, width) as stored values (rows, width, 16)."""
        _, rows, width = fields.shape
        out = np.empty((rows, width, len(CHANNELS)), DTYPES[self.layout])
        band_rows = max(1, _BAND_VALUES // (width * len(CHANNELS)))
        offset = self.offset.astype(np.float32)[:, None, None]
        factor = (1 / self.scale).astype(np.float32)[:, None, None]
        for start in range(0, rows, band_rows):
            band = fields[:, start : start + band_rows]
            if self.layout == "half":
                with np.errstate(over="ignore", invalid="ignore"):  # the caller checks for overflow
                    band = to_half((band - offset) * factor)
            for channel, values in enumerate(band):  # faster than moving the axis of all at once
                out[start : start + band_rows, :, channel] = values
        return out


def to_half(values: NDArray[Any]) -> NDArray[np.float16]:
    """Return ``values`` as float16, rounded as by ``astype``, which takes twice as long.

    The bits of a float32 are rounded to the nearest even number of 11 significant bits; then the
    bias of the exponent changes from 127 to 15. Values too small or too large for that are rare.
    """
    if values.dtype != np.float32:
        return values.astype(np.float16)
    bits = values.view(np.uint32)
    half = bits >> np.uint32(13)
    half &= np.uint32(1)
    half += bits
    half += np.uint32((0x0FFF - (112 << 23)) % (1 << 32))
    half >>= np.uint32(13)
    half &= np.uint32(0x7FFF)
    half |= (bits >> np.uint32(16)) & np.uint32(0x8000)
    out: NDArray[np.float16] = half.astype(np.uint16).view(np.float16)
    size = np.abs(values)
    outside = (size < _LEAST_NORMAL) | ~(size < _INFINITE_FROM)
    if outside.any():
        out[outside] = values[outside].astype(np.float16)
    return out


def frame_encoding(
    height: int, width: int, layout: Layout, offset: NDArray[Any], scale: NDArray[Any]
) -> FrameEncoding:
    """Return the encoding of a layout; ``raw`` keeps the file's units (offset 0, scale 1)."""
    channels = len(CHANNELS)
    if layout == "raw":
        offset, scale = np.zeros(channels), np.ones(channels)
    # Rounded to float32, so that a reader that decodes in float32 uses the same numbers.
    offset = np.asarray(offset, np.float32).astype(np.float64)
    scale = np.asarray(scale, np.float32).astype(np.float64)
    if offset.shape != (channels,) or scale.shape != (channels,) or not (scale > 0).all():
        raise ValueError(f"offset and scale need {channels} numbers each, all scales above 0")
    return FrameEncoding(height, width, layout, offset, scale)


def check_overflow(stored: NDArray[Any], fields: NDArray[Any], where: str) -> None:
    """Raise ``UsageError`` if values of finite ``fields`` do not fit into half precision."""
    if stored.dtype != np.float16 or _largest_bits(stored) < _INFINITY_BITS:
        return
    if not (np.abs(fields) < FILL).all():  # NaN, infinite or fill values: reported elsewhere
        return
    fits = np.isfinite(stored).reshape(-1, len(CHANNELS)).all(axis=0)
    raise UsageError(
        f"{where}: {CHANNELS[int(np.argmin(fits))]} has values too far from its mean for half "
        "precision",
        hint="keep the values of the file: --layout raw",
    )


def _largest_bits(stored: NDArray[np.float16]) -> int:
    """Return the largest absolute value as bits: much faster than ``isfinite`` of float16."""
    return int((stored.view(np.uint16) & np.uint16(0x7FFF)).max())


class FrameShardFile:
    """A shard that is being written, in any order, under a temporary name until ``close``."""

    def __init__(self, path: Path, encoding: FrameEncoding) -> None:
        self._encoding = encoding
        self._file = NewFile(path)

    def put(self, frame: int, first_row: int, stored: NDArray[Any]) -> None:
        """Write rows of a frame, (rows, width, 16)."""
        row_bytes = self._encoding.frame_bytes // self._encoding.height
        offset = frame * self._encoding.stride_bytes + first_row * row_bytes
        self._file.write(np.ascontiguousarray(stored).reshape(-1).view(np.uint8).data, offset)

    def close(self, frames: int) -> tuple[FrameShard, tuple[str, ...]]:
        """Rename the shard of ``frames`` frames to its final name.

        Return its index entry and the values digest of each frame.
        """
        size = frames * self._encoding.stride_bytes  # including the padding of the last frame
        self._file.set_size(size)
        self._file.close()
        path = self._file.path
        # Hashed at the end, because rows come in any order; the page cache still has them.
        sha256, digests = hash_shard(
            path, self._encoding.header, self._encoding.frame_bytes, self._encoding.stride_bytes
        )
        return FrameShard(file=path.name, frames=frames, bytes=size, sha256=sha256), digests

    def abandon(self) -> None:
        """Delete the shard unless it was closed."""
        self._file.abandon()
