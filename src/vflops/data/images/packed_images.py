"""Packed images: opened at once, read by many threads straight from the page cache.

DEST/
  index.json        what is inside, and the hash of every file
  train-00000.bin   images back to back: height × width × 3 bytes each, RGB, row by row
  train.npz         for every image: offset in its shard, height, width, label
  val-00000.bin …   val.npz
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

from vflops.data.images.image_index import CHANNELS, PackedIndex, Split
from vflops.data.images.image_writer import ShardWriter
from vflops.data.open_shards import OpenShards
from vflops.data.packed import INDEX, REPAIR, PackedFolder, read_table
from vflops.errors import FolderError, UsageError

__all__ = ["PackedImages", "PackedSplit", "ShardWriter"]

Indices = NDArray[np.integer] | Sequence[int]

_PART_IMAGES = 32
"""Images that one thread copies before it takes more: a millisecond or so of work."""

_COLUMNS = {"offsets": np.int64, "heights": np.int32, "widths": np.int32, "labels": np.int64}


class PackedImages(PackedFolder[PackedIndex]):
    """A folder of packed images."""

    kind = "packed images"
    index_type = PackedIndex

    def check_index(self) -> None:
        """Refuse an index that contradicts itself."""
        for name, split in self.index.splits.items():
            if split.images != sum(shard.images for shard in split.shards):
                raise FolderError(
                    f"{self.path / INDEX}: images of {name} do not add up", hint=REPAIR
                )

    def split(self, name: str) -> PackedSplit:
        """The images of ``train`` or ``val``."""
        if name not in self.index.splits:
            raise UsageError(
                f"{self.path} has no split {name!r}", hint=f"it has {', '.join(self.index.splits)}"
            )
        return PackedSplit(self, name)


class PackedSplit:
    """The images of one split: tables in memory, pixels mapped from their files.

    Safe to read from several threads: a copy is one slice assignment, which lets go of the GIL.
    """

    def __init__(self, images: PackedImages, name: str) -> None:
        self.name = name
        self.classes = images.index.classes
        self.fingerprint = images.fingerprint
        self._path = images.path
        self._about: Split = images.index.splits[name]
        table = read_table(
            images.path / self._about.table.file,
            "images",
            {name: (kind, (self._about.images,)) for name, kind in _COLUMNS.items()},
        )
        self.labels: NDArray[np.int64] = table["labels"]
        self.heights: NDArray[np.int32] = table["heights"]
        self.widths: NDArray[np.int32] = table["widths"]
        self._offsets: NDArray[np.int64] = table["offsets"]
        self.sizes_bytes: NDArray[np.int64] = self.heights.astype(np.int64) * self.widths * CHANNELS
        counts = [shard.images for shard in self._about.shards]
        self._shard_of = np.repeat(np.arange(len(counts)), counts)
        self._check_table()
        self._shards = OpenShards(images.path, self._about.shards)

    def __len__(self) -> int:
        return self._about.images

    @property
    def max_bytes(self) -> int:
        """The size of the largest image: ``n`` images always fit in ``n`` times as much."""
        return int(self.sizes_bytes.max(initial=0))

    def read(self, indices: Indices, out: NDArray[np.uint8]) -> NDArray[np.int64]:
        """Copy the named images one after another into ``out``; where each of them starts."""
        chosen, starts = self._places(indices, out)
        self._copy(chosen, starts, out)
        return starts

    def read_with(
        self, pool: ThreadPoolExecutor, indices: Indices, out: NDArray[np.uint8]
    ) -> NDArray[np.int64]:
        """``read`` with the threads of ``pool``."""
        chosen, starts = self._places(indices, out)
        parts = [
            pool.submit(self._copy, chosen[i : i + _PART_IMAGES], starts[i : i + _PART_IMAGES], out)
            for i in range(0, len(chosen), _PART_IMAGES)
        ]
        for part in parts:
            part.result()
        return starts

    def image(self, index: int) -> NDArray[np.uint8]:
        """One image, height × width × 3: for looking at, not for training."""
        out = np.empty(int(self.sizes_bytes[index]), np.uint8)
        self.read([index], out)
        return out.reshape(int(self.heights[index]), int(self.widths[index]), CHANNELS)

    def _places(
        self, indices: Indices, out: NDArray[np.uint8]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        chosen = np.asarray(indices, dtype=np.int64)
        sizes = self.sizes_bytes[chosen]
        ends = np.cumsum(sizes)
        needed = int(ends[-1]) if len(ends) else 0
        if out.dtype != np.uint8 or out.ndim != 1 or out.size < needed:
            raise ValueError(
                f"out is {out.dtype}{list(out.shape)}, expected a flat uint8 array of {needed}"
            )
        return chosen, ends - sizes

    def _copy(
        self, chosen: NDArray[np.int64], starts: NDArray[np.int64], out: NDArray[np.uint8]
    ) -> None:
        # Plain numbers before the loop: an element of a numpy array costs more than the rest.
        maps = self._shards.maps
        for shard, source, start, size in zip(
            self._shard_of[chosen].tolist(),
            self._offsets[chosen].tolist(),
            starts.tolist(),
            self.sizes_bytes[chosen].tolist(),
            strict=True,
        ):
            pixels = maps[shard]
            if pixels is None:
                pixels = self._shards.map(shard)
            out[start : start + size] = pixels[source : source + size]

    def _check_table(self) -> None:
        """Every image lies inside its shard, after the one before it."""
        ends = self._offsets + self.sizes_bytes
        limits = np.array([shard.bytes for shard in self._about.shards], np.int64)
        inside = (self._offsets >= 0) & (self.sizes_bytes > 0) & (ends <= limits[self._shard_of])
        known = (self.labels >= 0) & (self.labels < len(self.classes))
        if not (inside & known).all():
            number = int(np.argmin(inside & known))
            raise FolderError(
                f"{self._path / self._about.table.file}: image {number} lies outside its shard "
                "or has no class",
                hint=REPAIR,
            )
