"""Packed images, which many threads can read straight from the page cache.

DEST/
  index.json        what is packed, and the hash of every file
  train-00000.bin   images back to back: height × width × 3 bytes each, RGB, row by row
  train.npz         for every image: offset in its shard, height, width, label
  train.digests     for every image: the SHA-256 of its size and pixels
  val-00000.bin …   val.npz   val.digests
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import DTypeLike, NDArray

from vflops.data.images.image_index import CHANNELS, ImageIndex, image_header, label_bytes
from vflops.data.packed_folder import PackedFolder, PackedSplit, SampleExtents, SampleIndices
from vflops.data.packed_index import REPAIR
from vflops.errors import FolderError

_BLOCK_IMAGES = 32
"""Number of images that a thread copies at a time: about a millisecond of work."""

_COLUMNS: dict[str, tuple[DTypeLike, tuple[int, ...]]] = {
    "offsets": (np.int64, ()),
    "heights": (np.int32, ()),
    "widths": (np.int32, ()),
    "labels": (np.int64, ()),
}


class PackedImages(PackedFolder[ImageIndex]):
    """A folder of packed images."""

    samples = "images"
    index_type = ImageIndex

    def split(self, name: str) -> PackedImageSplit:
        """Return the images of ``train`` or ``val``."""
        return PackedImageSplit(self, name)


class PackedImageSplit(PackedSplit):
    """The images of one split: the table in memory, pixels mapped or read from their files.

    Safe to read from several threads: a copy is one slice assignment or read, which releases the
    GIL.
    """

    def __init__(self, images: PackedImages, name: str) -> None:
        super().__init__(images, name, _COLUMNS)
        self.classes = images.index.classes
        self.labels: NDArray[np.int64] = self.table["labels"]
        self.heights: NDArray[np.int32] = self.table["heights"]
        self.widths: NDArray[np.int32] = self.table["widths"]
        self._offsets: NDArray[np.int64] = self.table["offsets"]
        self.sizes_bytes: NDArray[np.int64] = self.heights.astype(np.int64) * self.widths * CHANNELS
        self._check_table()

    def read(self, indices: SampleIndices, out: NDArray[np.uint8]) -> NDArray[np.int64]:
        """Copy the given images back to back into ``out`` and return where each one starts."""
        chosen, starts = self._starts(indices, out)
        self._copy(chosen, starts, out)
        return starts

    def read_with(
        self, pool: ThreadPoolExecutor, indices: SampleIndices, out: NDArray[np.uint8]
    ) -> NDArray[np.int64]:
        """Do the same as ``read`` with the threads of ``pool``."""
        chosen, starts = self._starts(indices, out)
        blocks = [slice(i, i + _BLOCK_IMAGES) for i in range(0, len(chosen), _BLOCK_IMAGES)]
        copies = [pool.submit(self._copy, chosen[block], starts[block], out) for block in blocks]
        for copy in copies:
            copy.result()
        return starts

    def image(self, index: int) -> NDArray[np.uint8]:
        """Return one image, height × width × 3, for inspection, not for training."""
        out = np.empty(int(self.sizes_bytes[index]), np.uint8)
        self.read([index], out)
        return out.reshape(int(self.heights[index]), int(self.widths[index]), CHANNELS)

    def extents(self) -> SampleExtents:
        """Return where the pixels of each image lie."""
        return SampleExtents(self._offsets, self.sizes_bytes, self.sizes_bytes)

    def header(self, number: int) -> bytes:
        """Return what is hashed before the pixels of an image."""
        return image_header(int(self.heights[number]), int(self.widths[number]))

    def stored_values(self, number: int) -> NDArray[np.uint8]:
        """Return the pixels of one image."""
        return self.image(number).reshape(-1)

    def annotations(self) -> Iterator[bytes]:
        """Yield the labels as they are hashed."""
        return map(label_bytes, self.labels.tolist())

    def _starts(
        self, indices: SampleIndices, out: NDArray[np.uint8]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        chosen = np.asarray(indices, dtype=np.int64)
        self.require_present(chosen)
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
        # Plain numbers before the loop: indexing a numpy array costs more than the rest.
        columns = (
            self.shard_of[chosen].tolist(),
            self._offsets[chosen].tolist(),
            starts.tolist(),
            self.sizes_bytes[chosen].tolist(),
        )
        if self.shards.mapped:
            maps = self.shards.maps
            for shard, source, start, size in zip(*columns, strict=True):
                pixels = maps[shard]
                if pixels is None:
                    pixels = self.shards.map(shard)
                out[start : start + size] = pixels[source : source + size]
        else:  # requests of a network file system run at the same time
            for shard, source, _, size in zip(*columns, strict=True):
                self.shards.read_ahead(shard, source, size)
            for shard, source, start, size in zip(*columns, strict=True):
                self.shards.read(shard, source, out[start : start + size])
        if self.check is not None:
            for position in self.check.new(chosen):
                number, start = int(chosen[position]), int(starts[position])
                values = out[start : start + int(self.sizes_bytes[number])]
                self.check.compare(number, self.header(number), values)

    def _check_table(self) -> None:
        """Raise ``FolderError`` if an image lies outside its shard or has an unknown label."""
        ends = self._offsets + self.sizes_bytes
        limits = np.array([shard.bytes for shard in self.entry.shards], np.int64)
        inside = (self._offsets >= 0) & (self.sizes_bytes > 0) & (ends <= limits[self.shard_of])
        known = (self.labels >= 0) & (self.labels < len(self.classes))
        if not (inside & known).all():
            number = int(np.argmin(inside & known))
            raise FolderError(
                f"{self.table_path}: image {number} lies outside its shard or has no class",
                hint=REPAIR,
            )
