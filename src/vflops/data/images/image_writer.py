"""Writes packed images: shards one by one, then the tables and the index, then a rename."""

from __future__ import annotations

import hashlib
import io
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from vflops.data.images.image_index import (
    CHANNELS,
    SHARD_BYTES,
    PackedIndex,
    Part,
    Shard,
    Skipped,
    Split,
    Table,
)
from vflops.data.new_file import NewFile
from vflops.data.packed import Packing, digest, shard_name, table_name
from vflops.data.workspace import Workspace, refuse_occupied
from vflops.record.files import atomic


class ShardFile:
    """One shard while it is written: under another name until ``close``."""

    def __init__(self, path: Path) -> None:
        self._file = NewFile(path)
        self._sha256 = hashlib.sha256()
        self._sizes: list[tuple[int, int]] = []
        self._labels: list[int] = []

    @property
    def bytes(self) -> int:
        """Written so far."""
        return self._file.bytes

    def add(self, image: NDArray[np.uint8], label: int) -> None:
        """Append an image, height × width × 3."""
        if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != CHANNELS:
            raise ValueError(f"an image is uint8[height, width, 3], not {image.dtype}{image.shape}")
        data = np.ascontiguousarray(image).reshape(-1).data
        self._file.write(data)
        self._sha256.update(data)
        self._sizes.append((image.shape[0], image.shape[1]))
        self._labels.append(label)

    def close(self, source_digest: str = "", skipped: Sequence[Skipped] = ()) -> Part:
        """Put the shard in its place; what there is to know of it."""
        self._file.close()
        return Part(
            source_digest=source_digest,
            shard=Shard(
                file=self._file.path.name,
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
        self._file.abandon()


def finish(
    workspace: Workspace, about: dict[str, Any], parts: dict[str, list[Part]], identity: str
) -> None:
    """Write tables and index of the shards that were made, and put the folder in its place."""
    splits = {name: _split(workspace.path, name, of_split) for name, of_split in parts.items()}
    workspace.finish(PackedIndex(splits=splits, **about), identity)


def _split(folder: Path, name: str, parts: Sequence[Part]) -> Split:
    data = _table_bytes(parts)
    atomic.write_bytes(folder / table_name(name), data)
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
        refuse_occupied(destination)
        self._index = {
            "origin": origin,
            "synthetic": recipe is not None,
            "recipe": recipe,
            "short_side": short_side,
            "classes": tuple(classes),
        }
        packing = Packing(source=origin, settings={"short_side": short_side, "recipe": recipe})
        self._workspace = Workspace(destination, packing)
        self._held = self._workspace.locked()
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
                finish(self._workspace, self._index, self._parts, digest(self._index))
            else:
                for shard in self._open.values():
                    shard.abandon()
                shutil.rmtree(self._workspace.path, ignore_errors=True)
        finally:
            self._held.__exit__(kind, error, trace)
