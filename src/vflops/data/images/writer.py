"""Writes packed images: shards one by one, then the tables and the index, then a rename."""

from __future__ import annotations

import hashlib
import io
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from vflops.data.images.index import (
    CHANNELS,
    INDEX,
    PACKING,
    SHARD_BYTES,
    PackedIndex,
    Packing,
    Part,
    Shard,
    Skipped,
    Split,
    Table,
    digest,
    shard_name,
    table_name,
)
from vflops.errors import UsageError
from vflops.record import atomic
from vflops.record.lock import held

_PARTS = ".parts"
"""Holds what is known of finished shards and the lock, until all is done."""


class ShardFile:
    """One shard while it is written: under another name until ``close``."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.bytes = 0
        self._temporary = path.parent / f".{os.getpid()}-{os.urandom(3).hex()}.tmp"
        self._sha256 = hashlib.sha256()
        self._sizes: list[tuple[int, int]] = []
        self._labels: list[int] = []
        try:
            self._file = self._temporary.open("wb", buffering=0)
        except OSError as error:
            raise atomic.cannot_write(path, error) from error

    def add(self, image: NDArray[np.uint8], label: int) -> None:
        """Append an image, height × width × 3."""
        if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != CHANNELS:
            raise ValueError(f"an image is uint8[height, width, 3], not {image.dtype}{image.shape}")
        data = np.ascontiguousarray(image).reshape(-1).data
        try:
            self._write(data)
        except OSError as error:
            self.abandon()
            raise atomic.cannot_write(self.path, error) from error
        self._sha256.update(data)
        self.bytes += image.size
        self._sizes.append((image.shape[0], image.shape[1]))
        self._labels.append(label)

    def _write(self, rest: memoryview) -> None:
        while len(rest):  # a disk that fills takes a part first, then refuses
            rest = rest[self._file.write(rest) or 0 :]

    def close(self, source_digest: str = "", skipped: Sequence[Skipped] = ()) -> Part:
        """Put the shard in its place; what there is to know of it."""
        try:
            os.fsync(self._file.fileno())
            self._file.close()
            self._temporary.replace(self.path)  # the folder is synced with the index, at the end
        except OSError as error:
            self.abandon()
            raise atomic.cannot_write(self.path, error) from error
        return Part(
            source_digest=source_digest,
            shard=Shard(
                file=self.path.name,
                images=len(self._labels),
                bytes=self.bytes,
                sha256=self._sha256.hexdigest(),
            ),
            heights=tuple(height for height, _ in self._sizes),
            widths=tuple(width for _, width in self._sizes),
            labels=tuple(self._labels),
            skipped=tuple(skipped),
        )

    def abandon(self) -> None:
        """Leave nothing behind."""
        with suppress(OSError):
            self._file.close()
        with suppress(OSError):
            self._temporary.unlink()


class Workspace:
    """``DEST.partial``: where a folder of packed images is made, held by one process."""

    def __init__(self, destination: Path, packing: Packing) -> None:
        self.destination = destination
        self.packing = packing
        self.path = destination.with_name(destination.name + ".partial")

    @contextmanager
    def held(self) -> Iterator[Self]:
        """Make or go on with the folder; another packing's, or one in use, is refused."""
        if self.path.exists() and (not self.path.is_dir() or any(self.path.iterdir())):
            self._check_ours()
        atomic.make_folder(self.path / _PARTS)
        with self._lock():
            for stale in self.path.glob(".*.tmp"):
                stale.unlink(missing_ok=True)  # of a process that was killed
            self.packing.write(self.path / PACKING)
            yield self

    def _check_ours(self) -> None:
        cure = f"remove {self.path}, or choose another destination"
        if not (self.path / PACKING).is_file():
            if (self.path / _PARTS).is_dir():
                return  # killed before its first file was written
            raise UsageError(f"{self.path} exists and is no packing of ours", cure=cure)
        found = Packing.read(self.path / PACKING)
        if (found.source, found.settings) != (self.packing.source, self.packing.settings):
            raise UsageError(
                f"{self.path} holds a packing of {found.source} with {found.settings}, "
                f"not of {self.packing.source} with {self.packing.settings}",
                cure=cure,
            )

    def _lock(self) -> AbstractContextManager[None]:
        return held(self.path / _PARTS / "lock", self.path)

    def part_file(self, shard: str) -> Path:
        """Where what is known of a finished shard is kept."""
        return self.path / _PARTS / f"{shard}.json"

    def finish(self, index: dict[str, Any], parts: dict[str, list[Part]], identity: str) -> None:
        """Write tables and index, drop what they do not name, and rename the folder."""
        splits = {name: self._split(name, of_split) for name, of_split in parts.items()}
        PackedIndex(splits=splits, **index).write(self.path / INDEX)
        self.packing.model_copy(update={"identity": identity}).write(self.path / PACKING)
        named = {shard.file for split in splits.values() for shard in split.shards}
        for path in self.path.glob("*.bin"):
            if path.name not in named:
                path.unlink()  # empty, or of a longer list of files before some were removed
        try:
            self.path.replace(self.destination)
        except OSError as error:
            raise atomic.cannot_write(self.destination, error) from error
        atomic.sync_folder(self.destination.parent)
        self.tidy()

    def tidy(self) -> None:
        """Drop what only the making needed; a kill just before leaves it to the next start."""
        shutil.rmtree(self.destination / _PARTS, ignore_errors=True)

    def _split(self, name: str, parts: Sequence[Part]) -> Split:
        data = _table_bytes(parts)
        atomic.write_bytes(self.path / table_name(name), data)
        return Split(
            images=sum(part.shard.images for part in parts),
            skipped=tuple(skipped for part in parts for skipped in part.skipped),
            table=Table(
                file=table_name(name), bytes=len(data), sha256=hashlib.sha256(data).hexdigest()
            ),
            shards=tuple(part.shard for part in parts if part.shard.images),
        )


def _table_bytes(parts: Sequence[Part]) -> bytes:
    heights = np.array([height for part in parts for height in part.heights], np.int32)
    widths = np.array([width for part in parts for width in part.widths], np.int32)
    labels = np.array([label for part in parts for label in part.labels], np.int64)
    offsets = [np.empty(0, np.int64)]
    for part in parts:
        sizes = np.array(part.heights, np.int64) * np.array(part.widths, np.int64) * CHANNELS
        offsets.append(np.cumsum(sizes) - sizes)
    file = io.BytesIO()
    np.savez(file, offsets=np.concatenate(offsets), heights=heights, widths=widths, labels=labels)
    return file.getvalue()


def occupied(destination: Path) -> bool:
    """Whether ``destination`` exists and is not an empty folder."""
    if not destination.is_dir():
        return destination.exists()
    return any(destination.iterdir())


class ShardWriter:
    """Packs images that a program makes: the folder appears whole, when the block ends well.

    with ShardWriter(path, origin="shapes", short_side=64, classes=names, recipe={…}) as writer:
        writer.add(image, label, split="train")
    """

    def __init__(
        self,
        destination: Path,
        *,
        origin: str,
        short_side: int,
        classes: Sequence[str],
        recipe: dict[str, Any] | None = None,
        shard_bytes: int = SHARD_BYTES,
    ) -> None:
        if occupied(destination):
            raise UsageError(
                f"{destination} exists and is not empty", cure="remove it, or choose another place"
            )
        self._index = {
            "origin": origin,
            "synthetic": recipe is not None,
            "recipe": recipe,
            "short_side": short_side,
            "classes": tuple(classes),
        }
        packing = Packing(source=origin, settings={"short_side": short_side, "recipe": recipe})
        self._workspace = Workspace(destination, packing)
        self._held = self._workspace.held()
        self._shard_bytes = shard_bytes
        self._open: dict[str, ShardFile] = {}
        self._parts: dict[str, list[Part]] = {}

    def __enter__(self) -> Self:
        self._held.__enter__()
        return self

    def add(self, image: NDArray[np.uint8], label: int, *, split: str) -> None:
        """Append an image, uint8 height × width × 3, to ``train`` or ``val``."""
        shard = self._open.get(split)
        if shard is not None and shard.bytes + image.size > self._shard_bytes and shard.bytes:
            self._parts[split].append(shard.close())
            shard = None
        if shard is None:
            number = len(self._parts.setdefault(split, []))
            shard = ShardFile(self._workspace.path / shard_name(split, number))
            self._open[split] = shard
        shard.add(image, label)

    def __exit__(self, kind: type[BaseException] | None, error: Any, trace: Any) -> None:
        try:
            if kind is None:
                for split, shard in self._open.items():
                    self._parts[split].append(shard.close())
                self._workspace.finish(self._index, self._parts, digest(self._index))
            else:
                for shard in self._open.values():
                    shard.abandon()
                shutil.rmtree(self._workspace.path, ignore_errors=True)
        finally:
            self._held.__exit__(kind, error, trace)
