"""Synthetic images in the same forms as real ones: a folder of image files, or packed.

Both forms hold the same pixels and appear only when they are complete: they are built in
``DEST.partial``, then renamed. If a call is stopped, the same call resumes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from vflops.data.cached_data import OnWait, cached_data, no_wait
from vflops.data.destination import (
    move_into_place,
    require_replaceable,
    require_unoccupied,
    resolve_link,
)
from vflops.data.drawn_shards import Drawing, DrawnShard, draw_shards, shards_of
from vflops.data.images.drawing import Recipe, draw, labels_of
from vflops.data.images.image_index import (
    CHANNELS,
    SHARD_BYTES,
    ImagePart,
    ImageShard,
    image_header,
)
from vflops.data.images.image_writer import finish
from vflops.data.images.packed_images import PackedImages
from vflops.data.packed_index import PackingRecord, digest
from vflops.data.packing import group_by_split
from vflops.data.process_pool import OnProgress, Reporter, default_workers, no_progress, run_all
from vflops.data.synthetic_folder import begin_folder
from vflops.data.workspace import Workspace
from vflops.errors import UsageError
from vflops.record.files import atomic

Format = Literal["png", "jpeg", "webp"]
ORIGIN = "synthetic images"

_SUFFIX = {"png": "png", "jpeg": "jpg", "webp": "webp"}
_OPTIONS: dict[str, dict[str, Any]] = {
    "png": {"compress_level": 1},  # more effort does not make noise smaller
    "jpeg": {"quality": 92},
    "webp": {"quality": 92, "method": 2},
}
_SMALL_PIXELS = 1 << 24  # drawing fewer is faster than starting other processes
_CHUNK_PIXELS = 1 << 21  # drawn between two reports of progress


def class_names(recipe: Recipe) -> tuple[str, ...]:
    """Return one name per class, in the order of labels, which is also alphabetical."""
    return tuple(_class_name(label) for label in range(recipe.classes))


def _class_name(label: int) -> str:
    return f"class-{label:04d}"


def write_folder(
    recipe: Recipe,
    folder: Path,
    train: int,
    val: int,
    format: Format = "png",
    on_progress: OnProgress = no_progress,
    workers: int | None = None,
) -> Path:
    """Write ``train/<class>/<index>.png`` and ``val/…`` to ``folder``; only PNG is lossless."""
    folder = resolve_link(folder)
    splits = _splits(recipe, train, val, folder)
    if format not in get_args(Format):
        raise UsageError(
            f"format is {format!r}", hint=f"expected one of {', '.join(get_args(Format))}"
        )
    require_replaceable(folder)
    full_recipe = {**recipe.as_dict(), "images": splits, "format": format}
    partial = begin_folder(folder, full_recipe, "images")
    for split in splits:
        for name in class_names(recipe):
            atomic.make_folder(partial / split / name)
    tasks = [
        _FilesTask(partial, recipe, format, split, start, count)
        for split, images in splits.items()
        for start, count in _chunks(images, _chunk_images(recipe))
    ]
    run_all(
        _write_files,
        tasks,
        workers=workers or _workers(recipe, train + val),
        total=train + val,
        on_progress=on_progress,
        done="groups of images are written",
    )
    move_into_place(partial, folder)
    return folder


def pack(
    recipe: Recipe,
    folder: Path,
    train: int,
    val: int,
    on_progress: OnProgress = no_progress,
    workers: int | None = None,
) -> PackedImages:
    """Draw the same images and pack them into ``folder``, without writing image files first."""
    splits = _splits(recipe, train, val, folder)
    full_recipe = {**recipe.as_dict(), "images": splits}
    with Workspace(
        folder, PackingRecord(source=ORIGIN, settings=full_recipe)
    ).locked() as workspace:
        if workspace.finished_elsewhere():
            return PackedImages.open(folder)
        shards = shards_of(splits, images_per_shard(recipe))
        parts = draw_shards(
            ImageDrawing(recipe),
            shards,
            workspace,
            workers=workers or _workers(recipe, train + val),
            on_progress=on_progress,
        )
        index = {
            "origin": ORIGIN,
            "synthetic": True,
            "recipe": full_recipe,
            "short_side": recipe.size,
            "classes": class_names(recipe),
        }
        finish(workspace, index, group_by_split(splits, shards, parts), digest(full_recipe))
    return PackedImages.open(folder)


def cached_images(
    recipe: Recipe,
    train: int,
    val: int,
    on_progress: OnProgress = no_progress,
    on_wait: OnWait = no_wait,
) -> Path:
    """Return the folder of these packed images in the cache; create it if it is missing."""
    full_recipe = {**recipe.as_dict(), "images": _splits(recipe, train, val)}
    name = f"images-{digest(full_recipe)[:16]}"
    return cached_data(name, lambda folder: pack(recipe, folder, train, val, on_progress), on_wait)


def images_per_shard(recipe: Recipe) -> int:
    """Return the number of images per shard: small enough that all processes have work."""
    return max(1, SHARD_BYTES // 4 // (recipe.size**2 * CHANNELS))


def _chunk_images(recipe: Recipe) -> int:
    return max(1, _CHUNK_PIXELS // recipe.size**2)


def _chunks(images: int, step: int) -> list[tuple[int, int]]:
    """Return (start, count) of consecutive chunks of up to ``step`` images."""
    return [(start, min(step, images - start)) for start in range(0, images, step)]


def _workers(recipe: Recipe, images: int) -> int:
    return default_workers(images * recipe.size**2, _SMALL_PIXELS)


@dataclass(frozen=True)
class _FilesTask:
    """Images of one split that one process writes as files."""

    root: Path
    recipe: Recipe
    format: Format
    split: str
    start: int
    count: int

    def path(self, index: int) -> Path:
        """Return the file of an image."""
        name = f"{index:07d}.{_SUFFIX[self.format]}"
        return self.root / self.split / _class_name(index % self.recipe.classes) / name


def _write_files(task: _FilesTask, report: Reporter) -> None:
    paths = [task.path(index) for index in range(task.start, task.start + task.count)]
    if not all(path.exists() for path in paths):  # otherwise an earlier call wrote them
        images, _ = draw(task.recipe, task.split, task.start, task.count)
        for path, image in zip(paths, images, strict=True):
            _write_file(path, image, task.format)
    report(task.count)


def _write_file(path: Path, image: NDArray[np.uint8], format: Format) -> None:
    from PIL import Image

    temporary = path.with_name(f".{os.getpid()}.tmp")
    try:
        Image.fromarray(image).save(temporary, format, **_OPTIONS[format])
        temporary.replace(path)  # a kill never leaves half an image under its final name
    except OSError as error:
        with suppress(OSError):
            temporary.unlink()
        raise atomic.cannot_write(path, error) from error


@dataclass(frozen=True)
class ImageDrawing(Drawing[None, ImagePart]):
    """Images of a recipe, as they are stored."""

    part_type = ImagePart

    recipe: Recipe

    @property
    def stride_bytes(self) -> int:
        """Bytes from the start of an image to the start of the next."""
        return self.recipe.size**2 * CHANNELS

    @property
    def sample_bytes(self) -> int:
        """Bytes of an image."""
        return self.stride_bytes

    @property
    def header(self) -> bytes:
        """What is hashed before the pixels of an image."""
        return image_header(self.recipe.size, self.recipe.size)

    @property
    def piece_samples(self) -> int:
        """Number of images that a process draws at a time."""
        return _chunk_images(self.recipe)

    def draw(
        self, split: str, start: int, count: int
    ) -> Iterator[tuple[NDArray[np.uint8], list[None]]]:
        """Yield all images at once; nothing has to be known of them to write the index."""
        images, _ = draw(self.recipe, split, start, count)
        yield images, [None] * count

    def part(
        self, shard: DrawnShard, sha256: str, digests: tuple[str, ...], facts: Sequence[None]
    ) -> ImagePart:
        """Return the part of a complete shard."""
        sides = (self.recipe.size,) * shard.count
        return ImagePart(
            source_digest="",
            shard=ImageShard(
                file=shard.shard,
                images=shard.count,
                bytes=shard.count * self.stride_bytes,
                sha256=sha256,
            ),
            heights=sides,
            widths=sides,
            labels=tuple(labels_of(self.recipe, shard.start, shard.count).tolist()),
            skipped=(),
            digests=digests,
        )


def _splits(recipe: Recipe, train: int, val: int, folder: Path | None = None) -> dict[str, int]:
    """Return the number of images by split; raise ``UsageError`` if they cannot be made."""
    if folder is not None:
        require_unoccupied(folder)
    if train < recipe.classes:
        raise UsageError(
            f"synthetic images: {train} training images for {recipe.classes} classes",
            hint="give at least one per class",
        )
    if val < 1:
        raise UsageError(f"synthetic images: {val} validation images", hint="give 1 or more")
    return {"train": train, "val": val}
