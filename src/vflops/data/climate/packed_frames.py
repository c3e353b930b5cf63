"""Packed frames, which many threads can read at the speed of the storage.

DEST/
  index.json        what is packed, in which units, and the hash of every file
  train-00000.bin   frames of height × width × 16 values, each at a multiple of 4,096 bytes
  train.npz         for every frame: boxes (15, 4) as x1, y1, x2, y2 and labels (15,), -1 for none
  train.digests     for every frame: the SHA-256 of its size and values
  validation-00000.bin …   validation.npz   test-00000.bin …   test.npz   and their digests
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from vflops.data.climate.field_names import CHANNELS, CLASSES, MAX_BOXES
from vflops.data.climate.frame_index import DTYPES, FrameIndex, boxes_bytes, frame_header
from vflops.data.packed_folder import PackedFolder, PackedSplit, SampleExtents, SampleIndices
from vflops.data.packed_index import INDEX, REPAIR
from vflops.errors import FolderError

_PIECE_BYTES = 1 << 21
"""Bytes that a thread reads at a time. A frame of 28 MB is 14 pieces, so that a few frames keep
many threads busy, and a piece is long enough for fast disk reads."""

_COLUMNS: dict[str, tuple[DTypeLike, tuple[int, ...]]] = {
    "boxes": (np.float32, (MAX_BOXES, 4)),
    "labels": (np.int64, (MAX_BOXES,)),
}

_MAX_THREADS = 32
"""Threads of a pool that read at the same time."""

Piece = tuple[int, int, int, int]
"""Shard number, offset in the shard, offset in the output, bytes."""


class PackedFrames(PackedFolder[FrameIndex]):
    """A folder of packed frames."""

    samples = "frames"
    index_type = FrameIndex

    def check_index(self) -> None:
        """Raise ``FolderError`` if the index is inconsistent or has a constant channel."""
        if self.index.channels != CHANNELS:
            raise FolderError(
                f"{self.path / INDEX}: its channels are not {', '.join(CHANNELS)}", hint=REPAIR
            )
        for what, values in (("std", self.index.std), ("scale", self.index.scale)):
            constant = [CHANNELS[i] for i, value in enumerate(values) if not value > 0]
            if constant:
                raise FolderError(
                    f"{self.path / INDEX}: {what} of {', '.join(constant)} is not above 0: values "
                    "cannot be normalised",
                    hint="pack it again from files that have these channels",
                )
        for split in self.index.splits.values():
            for shard in split.shards:
                if shard.bytes != shard.frames * self.index.stride_bytes:
                    raise FolderError(
                        f"{self.path / INDEX}: {shard.file} has {shard.bytes} bytes for "
                        f"{shard.frames} frames of {self.index.stride_bytes}",
                        hint=REPAIR,
                    )
        super().check_index()

    def split(self, name: str) -> PackedFrameSplit:
        """Return the frames of ``train``, ``validation`` or ``test``."""
        return PackedFrameSplit(self, name)


class PackedFrameSplit(PackedSplit):
    """The frames of one split: boxes in memory, fields read from their files.

    Safe to read from several threads: copies go straight into the caller's memory and release the
    GIL.
    """

    def __init__(self, frames: PackedFrames, name: str) -> None:
        super().__init__(frames, name, _COLUMNS)
        self.index = frames.index
        self.boxes: NDArray[np.float32] = self.table["boxes"]
        self.labels: NDArray[np.int64] = self.table["labels"]
        if not ((self.labels >= -1) & (self.labels < len(CLASSES))).all():
            raise FolderError(
                f"{self.table_path} has labels outside -1 to {len(CLASSES) - 1}", hint=REPAIR
            )
        counts = [shard.samples for shard in self.entry.shards]
        firsts = np.repeat(np.cumsum([0, *counts])[:-1], counts)
        self._offset = (np.arange(len(self)) - firsts) * self.index.stride_bytes

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the stored values."""
        return np.dtype(DTYPES[self.index.layout])

    def read(self, indices: SampleIndices, out: NDArray[Any]) -> None:
        """Copy the stored values of the given frames into ``out`` (n, height, width, 16)."""
        self.require_present(np.asarray(indices, np.int64))
        memory = self._memory(indices, out)
        self._read(self._pieces(indices), memory)
        for number, values in self._new(indices, memory):
            self._compare(number, values)

    def read_with(
        self, pool: ThreadPoolExecutor, indices: SampleIndices, out: NDArray[Any]
    ) -> None:
        """Do the same as ``read`` with the threads of ``pool``; several may share a frame."""
        self.require_present(np.asarray(indices, np.int64))
        memory = self._memory(indices, out)
        number = len(indices) * -(-self.index.frame_bytes // _PIECE_BYTES)
        if len(memory) <= _PIECE_BYTES:  # not worth handing over to other threads
            self.read(indices, out)
            return
        pieces = _SharedIterator(self._pieces(indices))
        readers = min(number, _MAX_THREADS)
        reads = [pool.submit(self._read, pieces, memory) for _ in range(readers)]
        for read in reads:
            read.result()
        # A frame is hashed as a whole, so it must be complete.
        for compared in [pool.submit(self._compare, *new) for new in self._new(indices, memory)]:
            compared.result()

    def extents(self) -> SampleExtents:
        """Return where the fields of each frame lie."""
        sizes = [np.full(len(self), n) for n in (self.index.frame_bytes, self.index.stride_bytes)]
        return SampleExtents(self._offset, *sizes)

    def header(self, number: int) -> bytes:
        """Return what is hashed before the values of a frame."""
        return frame_header(self.index.height, self.index.width, self.index.layout)

    def stored_values(self, number: int) -> NDArray[np.uint8]:
        """Return the bytes of one frame."""
        out = np.empty((1, *self.index.frame_shape), self.dtype)
        self.read([number], out)
        return out.reshape(-1).view(np.uint8)

    def annotations(self) -> Iterator[bytes]:
        """Yield the boxes of every frame as they are hashed."""
        return map(boxes_bytes, self.boxes, self.labels)

    def _new(
        self, indices: SampleIndices, memory: NDArray[np.uint8]
    ) -> Iterator[tuple[int, NDArray[np.uint8]]]:
        """Yield the frames in ``memory`` that have not been compared with their digests."""
        if self.check is not None:
            chosen, size = np.asarray(indices, np.int64), self.index.frame_bytes
            for position in self.check.new(chosen):
                yield int(chosen[position]), memory[position * size : (position + 1) * size]

    def _compare(self, number: int, values: NDArray[np.uint8]) -> None:
        if self.check is not None:
            self.check.compare(number, self.header(number), values)

    def fields(self, index: int) -> NDArray[np.float32]:
        """Return one frame, (16, height, width) in the file's units, for inspection."""
        out = np.empty((1, *self.index.frame_shape), self.dtype)
        self.read([index], out)
        scale = np.array(self.index.scale, np.float64)
        offset = np.array(self.index.offset, np.float64)
        values = out[0].astype(np.float64) * scale + offset
        return np.ascontiguousarray(np.moveaxis(values, -1, 0), np.float32)

    def _memory(self, indices: SampleIndices, out: NDArray[Any]) -> NDArray[np.uint8]:
        expected = (len(indices), *self.index.frame_shape)
        if out.dtype != self.dtype or out.shape != expected or not out.flags.c_contiguous:
            raise ValueError(
                f"out is {out.dtype}{list(out.shape)}, expected a contiguous "
                f"{self.dtype}{list(expected)}"
            )
        return out.reshape(-1).view(np.uint8)

    def _pieces(self, indices: SampleIndices) -> Iterator[Piece]:
        chosen = np.asarray(indices, np.int64)
        size = self.index.frame_bytes
        locations = zip(self.shard_of[chosen].tolist(), self._offset[chosen].tolist(), strict=True)
        for number, (shard, offset) in enumerate(locations):
            for start in range(0, size, _PIECE_BYTES):
                length = min(_PIECE_BYTES, size - start)
                yield shard, offset + start, number * size + start, length

    def _read(self, pieces: Iterator[Piece], memory: NDArray[np.uint8]) -> None:
        for shard, offset, start, length in pieces:
            self.shards.read(shard, offset, memory[start : start + length])


class _SharedIterator(Iterator[Piece]):
    """An iterator that several threads can advance."""

    def __init__(self, items: Iterator[Piece]) -> None:
        self._items = items
        self._lock = threading.Lock()

    def __next__(self) -> Piece:
        with self._lock:
            return next(self._items)
