"""Synthetic images in the forms that real ones have: a folder of files, or packed.

Both hold the same pixels and appear whole: made beside their place, then renamed. A killed making
goes on where it stopped.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args

import numpy as np
from numpy.typing import NDArray

from vflops.data.images.drawing import Recipe, draw
from vflops.data.images.image_index import CHANNELS, SHARD_BYTES, Part
from vflops.data.images.image_writer import ShardFile, finish
from vflops.data.images.packed_images import PackedImages
from vflops.data.packed import MARK, Packing, digest, shard_name
from vflops.data.process_pool import OnProgress, Reporter, all_of, silent, usable_cpus
from vflops.data.workspace import Workspace, occupied, partial_of, real_place, refuse_fixed
from vflops.errors import UsageError
from vflops.record.files import atomic
from vflops.record.files.cache import made_once

Task = TypeVar("Task")
Result = TypeVar("Result")
Format = Literal["png", "jpeg", "webp"]
ORIGIN = "synthetic images"

_SUFFIX = {"png": "png", "jpeg": "jpg", "webp": "webp"}
_OPTIONS: dict[str, dict[str, Any]] = {
    "png": {"compress_level": 1},  # noise does not get smaller for more work
    "jpeg": {"quality": 92},
    "webp": {"quality": 92, "method": 2},
}
_SMALL_PIXELS = 1 << 24  # below, drawn sooner than other processes start
_PIECE_PIXELS = 1 << 21


def class_names(recipe: Recipe) -> tuple[str, ...]:
    """One name a class, in the order of labels and of the alphabet."""
    return tuple(_class_name(label) for label in range(recipe.classes))


def _class_name(label: int) -> str:
    return f"class-{label:04d}"


def write_folder(
    recipe: Recipe,
    folder: Path,
    train: int,
    val: int,
    format: Format = "png",
    on_progress: OnProgress = silent,
    workers: int | None = None,
) -> Path:
    """``folder`` with ``train/<class>/<index>.png`` and ``val/…``; PNG keeps pixels as drawn."""
    folder = real_place(folder)
    splits = _splits(recipe, train, val, folder)
    if format not in get_args(Format):
        raise UsageError(
            f"format is {format!r}", hint=f"expected one of {', '.join(get_args(Format))}"
        )
    about = {**recipe.as_dict(), "images": splits, "format": format}
    partial = _begin(folder, about)
    for split in splits:
        for name in class_names(recipe):
            atomic.make_folder(partial / split / name)
    tasks = [
        _Files(partial, recipe, format, split, start, count)
        for split, images in splits.items()
        for start, count in _pieces(images, _piece(recipe))
    ]
    _all(_write_files, tasks, recipe, train + val, on_progress, workers)
    try:
        partial.replace(folder)
    except OSError as error:
        raise atomic.cannot_write(folder, error) from error
    atomic.sync_folder(folder.parent)
    return folder


def packed(
    recipe: Recipe,
    folder: Path,
    train: int,
    val: int,
    on_progress: OnProgress = silent,
    workers: int | None = None,
) -> PackedImages:
    """The packed form of the same images, without image files on the way."""
    splits = _splits(recipe, train, val, folder)
    about = {**recipe.as_dict(), "images": splits}
    with Workspace(folder, Packing(source=ORIGIN, settings=about)).locked() as workspace:
        tasks = [
            _Shard(workspace, recipe, split, number, start, count)
            for split, images in splits.items()
            for number, (start, count) in enumerate(_pieces(images, images_a_shard(recipe)))
        ]
        made = _all(_make_shard, tasks, recipe, train + val, on_progress, workers)
        parts: dict[str, list[Part]] = {split: [] for split in splits}
        for task, part in zip(tasks, made, strict=True):
            parts[task.split].append(part)
        index = {
            "origin": ORIGIN,
            "synthetic": True,
            "recipe": about,
            "short_side": recipe.size,
            "classes": class_names(recipe),
        }
        finish(workspace, index, parts, digest(about))
    return PackedImages.open(folder)


def cached(recipe: Recipe, train: int, val: int, on_progress: OnProgress = silent) -> Path:
    """The folder of these packed images in the cache, made if it is not there."""
    about = {**recipe.as_dict(), "images": _splits(recipe, train, val)}
    name = f"images-{digest(about)[:16]}"
    return made_once(name, lambda folder: packed(recipe, folder, train, val, on_progress))


def images_a_shard(recipe: Recipe) -> int:
    """A quarter of the usual shard at most: more pieces to share among processes."""
    return max(1, SHARD_BYTES // 4 // (recipe.size**2 * CHANNELS))


def _piece(recipe: Recipe) -> int:
    """Images drawn between two signs of progress."""
    return max(1, _PIECE_PIXELS // recipe.size**2)


@dataclass(frozen=True)
class _Files:
    """Images of one split that one process writes as files."""

    root: Path
    recipe: Recipe
    format: Format
    split: str
    start: int
    count: int

    def path(self, index: int) -> Path:
        """Where an image goes."""
        name = f"{index:07d}.{_SUFFIX[self.format]}"
        return self.root / self.split / _class_name(index % self.recipe.classes) / name


def _write_files(task: _Files, report: Reporter) -> None:
    paths = [task.path(index) for index in range(task.start, task.start + task.count)]
    if not all(path.exists() for path in paths):  # else they are of a making that was stopped
        images, _ = draw(task.recipe, task.split, task.start, task.count)
        for path, image in zip(paths, images, strict=True):
            _write_file(path, image, task.format)
    report(task.count)


def _write_file(path: Path, image: NDArray[np.uint8], format: Format) -> None:
    from PIL import Image

    temporary = path.with_name(f".{os.getpid()}.tmp")
    try:
        Image.fromarray(image).save(temporary, format, **_OPTIONS[format])
        temporary.replace(path)  # a kill leaves no half image under a name that counts
    except OSError as error:
        with suppress(OSError):
            temporary.unlink()
        raise atomic.cannot_write(path, error) from error


@dataclass(frozen=True)
class _Shard:
    """Images of one split that one process packs into one file."""

    workspace: Workspace
    recipe: Recipe
    split: str
    number: int
    start: int
    count: int


def _make_shard(task: _Shard, report: Reporter) -> Part:
    name = shard_name(task.split, task.number)
    part = task.workspace.kept(Part, name, "")
    if part is not None:  # of a making that was stopped
        report(task.count)
        return part
    shard = ShardFile(task.workspace.path / name)
    try:
        for start, count in _pieces(task.count, _piece(task.recipe)):
            images, labels = draw(task.recipe, task.split, task.start + start, count)
            for image, label in zip(images, labels.tolist(), strict=True):
                shard.add(image, label)
            report(count)
        part = shard.close()
    except BaseException:
        shard.abandon()
        raise
    part.write(task.workspace.part_file(name))
    return part


def _all(
    function: Callable[[Task, Reporter], Result],
    tasks: Sequence[Task],
    recipe: Recipe,
    images: int,
    on_progress: OnProgress,
    workers: int | None,
) -> list[Result]:
    """The results of all tasks in their order; processes of their own where that pays."""
    small = images * recipe.size**2 <= _SMALL_PIXELS
    number = workers or (1 if small else usable_cpus())
    done = "pieces are written"
    return all_of(function, tasks, workers=number, total=images, on_progress=on_progress, done=done)


def _splits(recipe: Recipe, train: int, val: int, folder: Path | None = None) -> dict[str, int]:
    """Images by split, after a look at whether they can be made there."""
    if folder is not None and occupied(folder):
        raise UsageError(f"{folder} exists and is not empty", hint="choose another place")
    if train < recipe.classes:
        raise UsageError(
            f"synthetic images: {train} to train on for {recipe.classes} classes",
            hint="give at least one a class",
        )
    if val < 1:
        raise UsageError(f"synthetic images: {val} to validate with", hint="give 1 or more")
    return {"train": train, "val": val}


def _pieces(images: int, step: int) -> list[tuple[int, int]]:
    return [(start, min(step, images - start)) for start in range(0, images, step)]


def _begin(folder: Path, about: dict[str, Any]) -> Path:
    """``folder.partial``, new or of the same recipe."""
    refuse_fixed(folder)
    partial = partial_of(folder)
    text = atomic.json_text(about)
    mark = partial / MARK
    if occupied(partial) and not (mark.is_file() and mark.read_text(encoding="utf-8") == text):
        raise UsageError(
            f"{partial} holds something else than these images", hint="remove it, then try again"
        )
    atomic.make_folder(partial)
    atomic.write_text(mark, text)
    return partial
