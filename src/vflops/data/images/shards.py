"""Packed images: opened at once, read by many threads straight from the page cache.

DEST/
  index.json        what is inside, and the hash of every file
  train-00000.bin   images back to back: height × width × 3 bytes each, RGB, row by row
  train.npz         for every image: offset in its shard, height, width, label
  val-00000.bin …   val.npz
"""

from __future__ import annotations

import resource
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vflops.data.images.index import (
    CHANNELS,
    INDEX,
    PackedIndex,
    Shard,
    Split,
    Table,
    files_of,
    hash_file,
)
from vflops.data.images.workers import OnProgress, silent
from vflops.data.images.writer import ShardWriter
from vflops.errors import CheckFailed, FolderError, UsageError

__all__ = ["PackedImages", "PackedSplit", "ShardWriter"]

Indices = NDArray[np.integer] | Sequence[int]

_PART_IMAGES = 32
"""Images that one thread copies before it takes more: a millisecond or so of work."""

_SPARE_FILES = 256
"""Open files that the rest of a program needs beside the shards."""

_COLUMNS = {"offsets": np.int64, "heights": np.int32, "widths": np.int32, "labels": np.int64}
_CURE = "copy the folder again, or pack it again: vflops data pack DIR"


class PackedImages:
    """A folder of packed images."""

    def __init__(self, path: Path, index: PackedIndex) -> None:
        self.path = path
        self.index = index

    @classmethod
    def open(cls, path: Path) -> PackedImages:
        """The packed images in ``path``; files and sizes are checked, contents are not."""
        if not (path / INDEX).is_file():
            what = "it has no index.json" if path.is_dir() else "there is no such folder"
            cure = "make one: vflops data pack DIR"
            if path.with_name(path.name + ".partial").is_dir():
                cure = "its packing did not end: give the same vflops data pack again"
            raise UsageError(f"{path} is no folder of packed images: {what}", cure=cure)
        index = PackedIndex.read(path / INDEX)
        for name, split in index.splits.items():
            if split.images != sum(shard.images for shard in split.shards):
                raise FolderError(f"{path / INDEX}: images of {name} do not add up", cure=_CURE)
        for file in files_of(index.splits.values()):
            _check_size(path, file)
        return cls(path, index)

    @cached_property
    def fingerprint(self) -> str:
        """The SHA-256 of ``index.json``, which has that of every other file."""
        return hash_file(self.path / INDEX)

    def split(self, name: str) -> PackedSplit:
        """The images of ``train`` or ``val``."""
        if name not in self.index.splits:
            raise UsageError(
                f"{self.path} has no split {name!r}", cure=f"it has {', '.join(self.index.splits)}"
            )
        return PackedSplit(self, name)

    def verify(self, on_progress: OnProgress = silent) -> int:
        """Hash every file: the bytes that were read, or an error naming each damaged file."""
        files = files_of(self.index.splits.values())
        total = sum(file.bytes for file in files)
        done = 0

        def count(block: int, _: int) -> None:
            nonlocal done
            done += block
            on_progress(done, total)

        bad = [
            file.file for file in files if hash_file(self.path / file.file, count) != file.sha256
        ]
        if bad:
            raise CheckFailed(
                f"{self.path}: {len(bad)} of {len(files)} files are not what was packed: "
                + ", ".join(bad),
                cure=_CURE,
            )
        return total


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
        table = _read_table(images.path / self._about.table.file, self._about.images)
        self.labels: NDArray[np.int64] = table["labels"]
        self.heights: NDArray[np.int32] = table["heights"]
        self.widths: NDArray[np.int32] = table["widths"]
        self._offsets: NDArray[np.int64] = table["offsets"]
        self.sizes_bytes: NDArray[np.int64] = self.heights.astype(np.int64) * self.widths * CHANNELS
        counts = [shard.images for shard in self._about.shards]
        self._shard_of = np.repeat(np.arange(len(counts)), counts)
        self._check_table()
        self._maps: list[NDArray[np.uint8] | None] = [None] * len(counts)
        self._opening = threading.Lock()

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
        maps = self._maps
        for shard, source, start, size in zip(
            self._shard_of[chosen].tolist(),
            self._offsets[chosen].tolist(),
            starts.tolist(),
            self.sizes_bytes[chosen].tolist(),
            strict=True,
        ):
            pixels = maps[shard]
            if pixels is None:
                pixels = self._map(shard)
            out[start : start + size] = pixels[source : source + size]

    def _map(self, number: int) -> NDArray[np.uint8]:
        with self._opening:
            found = self._maps[number]
            if found is None:
                shard = self._about.shards[number]
                _allow_open_files(len(self._maps))
                _check_size(self._path, shard)  # a mapping past the end would kill the process
                mapped = np.memmap(self._path / shard.file, np.uint8, "r")
                found = mapped.view(np.ndarray)  # slicing a memmap is ten times slower
                self._maps[number] = found
            return found

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
                cure=_CURE,
            )


def _check_size(folder: Path, file: Table | Shard) -> None:
    path = folder / file.file
    if Path(file.file).name != file.file:
        raise FolderError(f"{folder / INDEX} names {file.file!r}, which is no plain file name")
    try:
        size = path.stat().st_size
    except FileNotFoundError as error:
        raise FolderError(f"{path} is missing", cure=_CURE) from error
    except OSError as error:
        raise FolderError(f"cannot read {path}: {error.strerror or error}") from error
    if size != file.bytes:
        raise FolderError(
            f"{path} has {size} bytes, {INDEX} says {file.bytes}: it is damaged", cure=_CURE
        )


def _read_table(path: Path, images: int) -> dict[str, NDArray[Any]]:
    try:
        with np.load(path, allow_pickle=False) as file:
            table = {name: np.asarray(file[name]) for name in _COLUMNS}
    except (OSError, ValueError, KeyError, EOFError) as error:
        raise FolderError(f"{path} is not a table of images: {error}", cure=_CURE) from error
    for name, column in table.items():
        if column.dtype != _COLUMNS[name] or column.shape != (images,):
            raise FolderError(
                f"{path}: {name} is {column.dtype}{list(column.shape)}, "
                f"expected {np.dtype(_COLUMNS[name])}[{images}]",
                cure=_CURE,
            )
    return table


def _allow_open_files(shards: int) -> None:
    """Python keeps a file open for each mapping; 1,024 is often the limit, ImageNet has more."""
    needed = shards + _SPARE_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return
    allowed = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    if allowed < needed:
        raise UsageError(
            f"{shards} shards need {needed} open files, this process may have {hard}",
            cure="raise the limit: ulimit -n, or ask who runs the system",
        )
