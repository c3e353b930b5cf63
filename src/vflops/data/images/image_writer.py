"""Write packed images: shards one by one, then the tables and the index, then a rename."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from vflops.data.content_hash import as_digests, values_digest, write_digests
from vflops.data.destination import require_unoccupied
from vflops.data.duplicates import Sample, find_duplicates
from vflops.data.images.image_index import (
    CHANNELS,
    SHARD_BYTES,
    ImageIndex,
    ImagePart,
    ImageShard,
    ImageSplitEntry,
    SkippedImage,
    image_header,
    label_bytes,
)
from vflops.data.new_file import NewFile
from vflops.data.packed_index import PackingRecord, SplitContents, digest, shard_name
from vflops.data.split_table import write_table
from vflops.data.workspace import Workspace
from vflops.record.formats.job import Duplicates


class ImageShardFile:
    """A shard that is being written, under a temporary name until ``close``."""

    def __init__(self, path: Path) -> None:
        self._file = NewFile(path)
        self._sha256 = hashlib.sha256()
        self._sizes: list[tuple[int, int]] = []
        self._labels: list[int] = []
        self._digests: list[str] = []

    @property
    def bytes(self) -> int:
        """Bytes written so far."""
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
        self._digests.append(values_digest(image_header(*image.shape[:2]), data).hex())

    def close(self, source_digest: str = "", skipped: Sequence[SkippedImage] = ()) -> ImagePart:
        """Rename the shard to its final name and return what the index needs from it."""
        self._file.close()
        return ImagePart(
            source_digest=source_digest,
            shard=ImageShard(
                file=self._file.path.name,
                images=len(self._labels),
                bytes=self.bytes,
                sha256=self._sha256.hexdigest(),
            ),
            heights=tuple(height for height, _ in self._sizes),
            widths=tuple(width for _, width in self._sizes),
            labels=tuple(self._labels),
            skipped=tuple(skipped),
            digests=tuple(self._digests),
        )

    def abandon(self) -> None:
        """Delete the shard unless it was closed."""
        self._file.abandon()


def write_shard(
    workspace: Workspace,
    name: str,
    fill: Callable[[ImageShardFile], Sequence[SkippedImage]],
    source_digest: str = "",
) -> ImagePart:
    """Write the shard ``name`` and its part; ``fill`` adds images and returns those left out."""
    shard = ImageShardFile(workspace.path / name)
    try:
        part = shard.close(source_digest, fill(shard))
    except BaseException:
        shard.abandon()
        raise
    workspace.add_part(part)
    return part


def compare(
    names: Mapping[str, Sequence[str]], parts: Mapping[str, Sequence[ImagePart]]
) -> Duplicates:
    """Return what occurs twice among the packed images with these names, by split."""
    samples: dict[str, list[Sample]] = {"train": [], "val": []}
    for split, split_parts in parts.items():
        digests = [content for part in split_parts for content in part.digests]
        labels = [label for part in split_parts for label in part.labels]
        rows = zip(names[split], digests, labels, strict=True)
        samples[split] = [Sample(*row) for row in rows]
    return find_duplicates(samples["train"], samples["val"]).summary()


def finish(
    workspace: Workspace,
    index_fields: Mapping[str, Any],
    parts: Mapping[str, Sequence[ImagePart]],
    identity: str,
) -> None:
    """Write the tables and the index for the shards of each split, and rename the folder."""
    splits = {
        name: _write_split(workspace.path, name, split_parts) for name, split_parts in parts.items()
    }
    contents = {
        name: _write_digests(workspace.path, name, split_parts)
        for name, split_parts in parts.items()
    }
    workspace.finish(ImageIndex(splits=splits, contents=contents, **index_fields), identity)


def _write_digests(folder: Path, name: str, parts: Sequence[ImagePart]) -> SplitContents:
    digests = as_digests([content for part in parts for content in part.digests])
    labels = (label_bytes(label) for part in parts for label in part.labels)
    return write_digests(folder, name, digests, labels)


def _write_split(folder: Path, name: str, parts: Sequence[ImagePart]) -> ImageSplitEntry:
    return ImageSplitEntry(
        images=sum(part.shard.images for part in parts),
        skipped=tuple(skipped for part in parts for skipped in part.skipped),
        table=write_table(folder, name, _columns(parts)),
        shards=tuple(part.shard for part in parts if part.shard.images),
    )


def _columns(parts: Sequence[ImagePart]) -> dict[str, NDArray[Any]]:
    offsets = [np.empty(0, np.int64)]
    for part in parts:
        sizes = np.array(part.heights, np.int64) * np.array(part.widths, np.int64) * CHANNELS
        offsets.append(np.cumsum(sizes) - sizes)
    return {
        "offsets": np.concatenate(offsets),
        "heights": np.array([height for part in parts for height in part.heights], np.int32),
        "widths": np.array([width for part in parts for width in part.widths], np.int32),
        "labels": np.array([label for part in parts for label in part.labels], np.int64),
    }


class ImageWriter:
    """Packs images that a program creates; the folder appears when the block ends without error.

    with ImageWriter(path, origin="shapes", short_side=64, classes=names, recipe={…}) as writer:
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
        require_unoccupied(destination)
        self._index = {
            "origin": origin,
            "synthetic": recipe is not None,
            "recipe": recipe,
            "short_side": short_side,
            "classes": tuple(classes),
        }
        settings = {"short_side": short_side, "recipe": recipe}
        self._workspace = Workspace(destination, PackingRecord(source=origin, settings=settings))
        self._lock = self._workspace.locked()
        self._shard_bytes = shard_bytes
        self._open: dict[str, ImageShardFile] = {}
        self._parts: dict[str, list[ImagePart]] = {}

    def __enter__(self) -> Self:
        self._lock.__enter__()
        return self

    def add(self, image: NDArray[np.uint8], label: int, *, split: str) -> None:
        """Append an image, uint8 height × width × 3, to ``train`` or ``val``."""
        shard = self._open.get(split)
        if shard is not None and shard.bytes + image.size > self._shard_bytes and shard.bytes:
            self._parts[split].append(shard.close())
            shard = None
        if shard is None:
            number = len(self._parts.setdefault(split, []))
            shard = ImageShardFile(self._workspace.path / shard_name(split, number))
            self._open[split] = shard
        shard.add(image, label)

    def __exit__(self, kind: type[BaseException] | None, error: Any, trace: Any) -> None:
        try:
            if kind is None:
                for split, shard in self._open.items():
                    self._parts[split].append(shard.close())
                duplicates = None if self._index["synthetic"] else self._duplicates()
                index = {**self._index, "duplicates": duplicates}
                finish(self._workspace, index, self._parts, digest(self._index))
            else:
                for shard in self._open.values():
                    shard.abandon()
                self._workspace.discard()
        finally:
            self._lock.__exit__(kind, error, trace)

    def _duplicates(self) -> Duplicates:
        names = {
            split: [
                f"{split} image {number}" for number in range(sum(p.shard.images for p in parts))
            ]
            for split, parts in self._parts.items()
        }
        return compare(names, self._parts)
