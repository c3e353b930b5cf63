"""How fields are stored: in which units, in which order, and in which file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vflops.data.climate.field_names import CHANNELS
from vflops.data.climate.frame_index import DTYPES, Layout, Shard, aligned, frame_bytes
from vflops.data.climate.moments import FILL
from vflops.data.new_file import NewFile
from vflops.data.packed import hash_file
from vflops.errors import UsageError

SHARD_BYTES = 1 << 30
"""At most what a shard holds: few enough files for decades of frames, each soon made again."""

_BAND_VALUES = 1 << 19
"""Values that are turned round at a time: they stay in the cache."""


@dataclass(frozen=True)
class Storing:
    """How fields become stored values: (value - offset) / scale, channels last."""

    height: int
    width: int
    layout: Layout
    offset: NDArray[np.float64]
    scale: NDArray[np.float64]

    @property
    def frame_bytes(self) -> int:
        """What the values of a frame take."""
        return frame_bytes(self.height, self.width, self.layout)

    @property
    def stride_bytes(self) -> int:
        """From the start of a frame to the next."""
        return aligned(self.frame_bytes)

    @property
    def frames_a_shard(self) -> int:
        """As many as fit, and at least one."""
        return max(1, SHARD_BYTES // self.stride_bytes)

    def stored(self, fields: NDArray[Any]) -> NDArray[Any]:
        """``fields`` (16, rows, width) as they are stored: (rows, width, 16)."""
        _, rows, width = fields.shape
        out = np.empty((rows, width, len(CHANNELS)), DTYPES[self.layout])
        step = max(1, _BAND_VALUES // (width * len(CHANNELS)))
        offset = self.offset.astype(np.float32)[:, None, None]
        factor = (1 / self.scale).astype(np.float32)[:, None, None]
        for start in range(0, rows, step):
            band = fields[:, start : start + step]
            if self.layout == "half":
                with np.errstate(over="ignore", invalid="ignore"):  # found by who writes it
                    band = ((band - offset) * factor).astype(np.float16)
            out[start : start + step] = np.moveaxis(band, 0, -1)
        return out


def storing(
    height: int, width: int, layout: Layout, offset: NDArray[Any], scale: NDArray[Any]
) -> Storing:
    """How frames are stored; ``raw`` keeps the file's units, offset 0 and scale 1."""
    number = len(CHANNELS)
    if layout == "raw":
        offset, scale = np.zeros(number), np.ones(number)
    # Numbers that float32 has, so that who reads with float32 gets back what was meant.
    offset, scale = (np.asarray(one, np.float32).astype(np.float64) for one in (offset, scale))
    if offset.shape != (number,) or scale.shape != (number,) or not (scale > 0).all():
        raise ValueError(f"offset and scale are {number} numbers, scales above 0")
    return Storing(height, width, layout, offset, scale)


def refuse_overflow(stored: NDArray[Any], fields: NDArray[Any], where: str) -> None:
    """An error where values of finite ``fields`` do not fit into half precision."""
    if stored.dtype != np.float16 or np.isfinite(stored).all():
        return
    if not (np.abs(fields) < FILL).all():  # NaN, infinite or filled: named with its frame
        return
    fits = np.isfinite(stored).reshape(-1, len(CHANNELS)).all(axis=0)
    raise UsageError(
        f"{where}: {CHANNELS[int(np.argmin(fits))]} has values too far from its mean for half "
        "precision",
        hint="keep the file's own values: --layout raw",
    )


class FrameFile:
    """One shard while it is written, in any order: under another name until ``close``."""

    def __init__(self, path: Path, how: Storing) -> None:
        self._how = how
        self._file = NewFile(path)

    def put(self, frame: int, first_row: int, stored: NDArray[Any]) -> None:
        """Write rows of a frame, (rows, width, 16)."""
        row_bytes = self._how.frame_bytes // self._how.height
        place = frame * self._how.stride_bytes + first_row * row_bytes
        self._file.write(np.ascontiguousarray(stored).reshape(-1).view(np.uint8).data, place)

    def close(self, frames: int) -> Shard:
        """Put the shard of ``frames`` frames in its place; what the index says of it."""
        size = frames * self._how.stride_bytes  # to the end of the last frame's alignment
        self._file.close(size)
        path = self._file.path
        # Hashed as it lies there: rows come in any order, and the page cache still has them.
        return Shard(file=path.name, frames=frames, bytes=size, sha256=hash_file(path))

    def abandon(self) -> None:
        """Leave nothing behind."""
        self._file.abandon()
