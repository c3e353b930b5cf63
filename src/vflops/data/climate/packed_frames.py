"""Packed frames: opened at once, read by many threads at the speed of the storage.

DEST/
  index.json        what is inside, in which units, and the hash of every file
  train-00000.bin   frames of height × width × 16 values, each at a multiple of 4,096 bytes
  train.npz         for every frame: boxes (15, 4) as x1, y1, x2, y2 and labels (15,), -1 for none
  validation-00000.bin …   validation.npz   test-00000.bin …   test.npz
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vflops.data.climate.field_names import CHANNELS, CLASSES, MOST_BOXES
from vflops.data.climate.frame_index import DTYPES, FramesIndex, Split
from vflops.data.climate.frame_writer import FrameWriter
from vflops.data.open_shards import OpenShards
from vflops.data.packed import INDEX, REPAIR, PackedFolder, read_table
from vflops.errors import FolderError, UsageError

__all__ = ["FrameSplit", "FrameWriter", "PackedFrames"]

Indices = NDArray[np.integer[Any]] | Sequence[int]

_PIECE_BYTES = 1 << 21
"""What one thread reads at a time: a frame of 28 MB is 14 of them, so that few frames keep many
threads busy, and each is long enough for a disk to be fast."""

_LANES = 32
"""Most threads of a pool that are asked to read at a time."""

Piece = tuple[int, int, int, int]
"""Shard, place in it, place in the output, bytes."""


class PackedFrames(PackedFolder[FramesIndex]):
    """A folder of packed frames."""

    kind = "packed frames"
    index_type = FramesIndex

    def check_index(self) -> None:
        """Refuse an index that contradicts itself."""
        for what, values in (("std", self.index.std), ("scale", self.index.scale)):
            flat = [CHANNELS[place] for place, value in enumerate(values) if not value > 0]
            if flat:
                raise FolderError(
                    f"{self.path / INDEX}: {what} of {', '.join(flat)} is not above 0: values "
                    "cannot be normalised",
                    hint="pack it again from files that have these channels",
                )
        for name, split in self.index.splits.items():
            for shard in split.shards:
                if shard.bytes != shard.frames * self.index.stride_bytes:
                    raise FolderError(
                        f"{self.path / INDEX}: {shard.file} has {shard.bytes} bytes for "
                        f"{shard.frames} frames of {self.index.stride_bytes}",
                        hint=REPAIR,
                    )
            if split.frames != sum(shard.frames for shard in split.shards):
                raise FolderError(
                    f"{self.path / INDEX}: frames of {name} do not add up", hint=REPAIR
                )

    def split(self, name: str) -> FrameSplit:
        """The frames of ``train``, ``validation`` or ``test``."""
        if name not in self.index.splits:
            raise UsageError(
                f"{self.path} has no split {name!r}", hint=f"it has {', '.join(self.index.splits)}"
            )
        return FrameSplit(self, name)


class FrameSplit:
    """The frames of one split: boxes in memory, fields read from their files.

    Safe to read from several threads: copies go straight into the caller's memory and let go of
    the GIL.
    """

    def __init__(self, frames: PackedFrames, name: str) -> None:
        self.name = name
        self.index = frames.index
        self.fingerprint = frames.fingerprint
        about: Split = frames.index.splits[name]
        path = frames.path / about.table.file
        table = read_table(
            path,
            "boxes",
            {
                "boxes": (np.float32, (about.frames, MOST_BOXES, 4)),
                "labels": (np.int64, (about.frames, MOST_BOXES)),
            },
        )
        self.boxes: NDArray[np.float32] = table["boxes"]
        self.labels: NDArray[np.int64] = table["labels"]
        if not ((self.labels >= -1) & (self.labels < len(CLASSES))).all():
            raise FolderError(f"{path} has labels outside -1 to {len(CLASSES) - 1}", hint=REPAIR)
        counts = [shard.frames for shard in about.shards]
        self._shard_of = np.repeat(np.arange(len(counts)), counts)
        firsts = np.repeat(np.cumsum([0, *counts])[:-1], counts)
        self._place = (np.arange(about.frames) - firsts) * self.index.stride_bytes
        self._shards = OpenShards(frames.path, about.shards)

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of stored values."""
        return np.dtype(DTYPES[self.index.layout])

    def read(self, indices: Indices, out: NDArray[Any]) -> None:
        """The stored values of the named frames into ``out`` (n, height, width, 16)."""
        memory = self._memory(indices, out)
        self._read(self._pieces(indices), memory)

    def read_with(self, pool: ThreadPoolExecutor, indices: Indices, out: NDArray[Any]) -> None:
        """``read`` with the threads of ``pool``, several on one frame where frames are few."""
        memory = self._memory(indices, out)
        number = len(indices) * -(-self.index.frame_bytes // _PIECE_BYTES)
        if len(memory) <= _PIECE_BYTES:  # less than it takes to hand it over
            self._read(self._pieces(indices), memory)
            return
        pieces = _Shared(self._pieces(indices))
        lanes = [pool.submit(self._read, pieces, memory) for _ in range(min(number, _LANES))]
        for lane in lanes:
            lane.result()

    def fields(self, index: int) -> NDArray[np.float32]:
        """One frame, (16, height, width) in the file's units: for looking at."""
        out = np.empty((1, *self.index.frame_shape), self.dtype)
        self.read([index], out)
        scale, offset = (np.array(one, np.float64) for one in (self.index.scale, self.index.offset))
        values = out[0].astype(np.float64) * scale + offset
        return np.ascontiguousarray(np.moveaxis(values, -1, 0), np.float32)

    def _memory(self, indices: Indices, out: NDArray[Any]) -> NDArray[np.uint8]:
        expected = (len(indices), *self.index.frame_shape)
        if out.dtype != self.dtype or out.shape != expected or not out.flags.c_contiguous:
            raise ValueError(
                f"out is {out.dtype}{list(out.shape)}, expected a contiguous "
                f"{self.dtype}{list(expected)}"
            )
        return out.reshape(-1).view(np.uint8)

    def _pieces(self, indices: Indices) -> Iterator[Piece]:
        chosen = np.asarray(indices, np.int64)
        size = self.index.frame_bytes
        pairs = zip(self._shard_of[chosen].tolist(), self._place[chosen].tolist(), strict=True)
        for number, (shard, place) in enumerate(pairs):
            for start in range(0, size, _PIECE_BYTES):
                length = min(_PIECE_BYTES, size - start)
                yield shard, place + start, number * size + start, length

    def _read(self, pieces: Iterator[Piece], memory: NDArray[np.uint8]) -> None:
        for shard, place, start, length in pieces:
            self._shards.read(shard, place, memory[start : start + length])


class _Shared(Iterator[Piece]):
    """An iterator that several threads take from."""

    def __init__(self, items: Iterator[Piece]) -> None:
        self._items = items
        self._lock = threading.Lock()

    def __next__(self) -> Piece:
        with self._lock:
            return next(self._items)
