"""Synthetic frames in the same forms as real ones: a folder of HDF5 files, or packed.

Both forms hold the same frames and appear only when they are complete: they are built in
``DEST.partial``, then renamed. If a call is stopped, the same call resumes with the first
unfinished year or shard.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vflops.data.cached_data import OnWait, cached_data, no_wait
from vflops.data.climate import channel_statistics
from vflops.data.climate.field_names import CHANNELS, MAX_BOXES
from vflops.data.climate.frame_drawing import FrameDrawing, frame_moments_of
from vflops.data.climate.frame_encoding import frame_encoding
from vflops.data.climate.frame_writer import make_index, write_split
from vflops.data.climate.packed_frames import PackedFrames
from vflops.data.climate.weather import FRAMES_PER_YEAR, OFFSET, SCALE, WeatherRecipe, draw
from vflops.data.destination import (
    move_into_place,
    require_replaceable,
    require_unoccupied,
    resolve_link,
)
from vflops.data.drawn_shards import draw_shards, shards_of
from vflops.data.packed_index import PackingRecord, digest
from vflops.data.packing import group_by_split
from vflops.data.process_pool import (
    OnProgress,
    Reporter,
    default_workers,
    no_progress,
    run_all,
)
from vflops.data.synthetic_folder import begin_folder
from vflops.data.workspace import Workspace
from vflops.errors import UsageError
from vflops.record.files import atomic

ORIGIN = "synthetic weather"
FIRST_YEAR = 1979
COMPRESSIONS = ("gzip", "lzf")

_SMALL_PIXELS = 1 << 23  # drawing fewer is faster than starting other processes


def years_of(train: int, validation: int, test: int) -> dict[str, dict[int, int]]:
    """Return frames by year for each split; the last year is for testing, the one before it for
    validation."""
    for name, frames in (("training", train), ("validation", validation), ("test", test)):
        if frames < 1:
            raise UsageError(f"synthetic weather: {frames} {name} frames", hint="give 1 or more")
    full_years, remainder = divmod(train, FRAMES_PER_YEAR)
    frames_per_year = [FRAMES_PER_YEAR] * full_years + [remainder] * (remainder > 0)
    last = FIRST_YEAR + len(frames_per_year)
    return {
        "train": {FIRST_YEAR + number: frames for number, frames in enumerate(frames_per_year)},
        "validation": {last: validation},
        "test": {last + 1: test},
    }


def write_years(
    recipe: WeatherRecipe,
    folder: Path,
    frames: Mapping[int, int],
    *,
    compression: str | None = None,
    on_progress: OnProgress = no_progress,
    workers: int | None = None,
) -> list[Path]:
    """Write ``climo_YYYY.h5`` to a new ``folder`` for each year of ``frames``, as published."""
    folder = resolve_link(folder)
    require_unoccupied(folder)
    require_replaceable(folder)
    _check_arguments(frames, compression)
    frames_by_year = dict(sorted(frames.items()))
    full_recipe = {
        **recipe.as_dict(),
        "frames": {f"{year:04d}": n for year, n in frames_by_year.items()},
    }
    partial = begin_folder(folder, full_recipe, "frames")
    tasks = [
        _YearTask(recipe, partial / f"climo_{year:04d}.h5", year, count, compression)
        for year, count in frames_by_year.items()
    ]
    total = sum(frames_by_year.values())
    run_all(
        _write_year,
        tasks,
        workers=workers or _workers(recipe, total),
        total=total,
        on_progress=on_progress,
        done="years are written",
        hint="the same command resumes with the first unfinished year",
    )
    for stale in partial.glob(".*.tmp"):
        stale.unlink(missing_ok=True)  # left by a process that was killed
    move_into_place(partial, folder)
    return [folder / task.path.name for task in tasks]


def cached_frames(
    recipe: WeatherRecipe,
    train: int,
    validation: int,
    test: int,
    on_progress: OnProgress = no_progress,
    on_wait: OnWait = no_wait,
) -> Path:
    """Return the folder of these frames in the cache, in layout ``half``; create it if missing."""
    counts = {
        split: sum(frames_by_year.values())
        for split, frames_by_year in years_of(train, validation, test).items()
    }
    full_recipe = {**recipe.as_dict(), "frames": counts}
    # The split is part of the name: a cache may hold older frames without reference_split.
    name = f"weather-{digest([full_recipe, 'reference split'])[:16]}"
    return cached_data(
        name, lambda folder: pack(recipe, folder, train, validation, test, on_progress), on_wait
    )


def pack(
    recipe: WeatherRecipe,
    folder: Path,
    train: int,
    validation: int,
    test: int,
    on_progress: OnProgress = no_progress,
    workers: int | None = None,
) -> PackedFrames:
    """Draw frames and pack them into ``folder`` in layout ``half``; complete shards are kept."""
    require_unoccupied(folder)
    years = years_of(train, validation, test)
    counts = {split: sum(frames_by_year.values()) for split, frames_by_year in years.items()}
    index_fields = {
        "origin": ORIGIN,
        "synthetic": True,
        "recipe": {**recipe.as_dict(), "frames": counts},
        "years": {split: tuple(frames_by_year) for split, frames_by_year in years.items()},
        "reference_split": True,
    }
    encoding = frame_encoding(recipe.height, recipe.width, "half", OFFSET, SCALE)
    settings = {"layout": "half", "recipe": index_fields["recipe"]}
    with Workspace(folder, PackingRecord(source=ORIGIN, settings=settings)).locked() as workspace:
        if workspace.finished_elsewhere():
            return PackedFrames.open(folder)
        shards = shards_of(counts, encoding.frames_per_shard)
        parts = draw_shards(
            FrameDrawing(
                recipe, {split: min(of_split) for split, of_split in years.items()}, encoding
            ),
            shards,
            workspace,
            workers=workers or _workers(recipe, sum(counts.values())),
            on_progress=on_progress,
        )
        groups = group_by_split(counts, shards, parts)
        moments = channel_statistics.merge(
            [moments for part in groups["train"] for moments in frame_moments_of(part, encoding)]
        )
        splits = {
            split: write_split(
                workspace.path,
                split,
                [np.array(boxes, np.int32) for part in group for boxes in part.boxes],
                [part.shard for part in group],
                [content for part in group for content in part.digests],
            )
            for split, group in groups.items()
        }
        index = make_index(encoding, moments, splits, **index_fields)
        workspace.finish(index, digest(index_fields))
    return PackedFrames.open(folder)


@dataclass(frozen=True)
class _YearTask:
    """A file that one process writes."""

    recipe: WeatherRecipe
    path: Path
    year: int
    frames: int
    compression: str | None


def _write_year(task: _YearTask, report: Reporter) -> None:
    if task.path.exists():  # finished before the call was stopped
        report(task.frames)
        return
    temporary = task.path.with_name(f".{task.path.name}-{os.getpid()}.tmp")
    try:
        _fill(temporary, task, report)
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.replace(task.path)
        atomic.sync_folder(task.path.parent)
    except OSError as error:
        raise atomic.cannot_write(task.path, error) from error
    except RuntimeError as error:  # what h5py raises if a write fails late
        raise atomic.cannot_write(task.path, OSError(str(error))) from error
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def _fill(path: Path, task: _YearTask, report: Reporter) -> None:
    """Write a year to ``path`` frame by frame; if compressed, each field is a chunk."""
    import h5py

    size = (task.recipe.height, task.recipe.width)
    options: dict[str, Any] = {}
    if task.compression is not None:
        options = {"chunks": (1, 1, *size), "compression": task.compression, "shuffle": True}
        if task.compression == "gzip":
            options["compression_opts"] = 1  # more effort does not make noise smaller
    with h5py.File(path, "w", libver=("earliest", "v110")) as file:
        shape = (task.frames, len(CHANNELS), *size)
        images = file.create_dataset("images", shape, dtype="<f4", **options)
        boxes = np.full((task.frames, MAX_BOXES, 5), -1, np.int32)
        for number in range(task.frames):
            frame = draw(task.recipe, task.year, number)
            images[number] = frame.fields
            boxes[number, : len(frame.boxes)] = frame.boxes
            report()
        file.create_dataset("boxes", data=boxes, dtype="<i4")


def _workers(recipe: WeatherRecipe, frames: int) -> int:
    return default_workers(frames * recipe.height * recipe.width, _SMALL_PIXELS)


def _check_arguments(frames: Mapping[int, int], compression: str | None) -> None:
    if not frames:
        raise UsageError("synthetic weather: there are no years", hint="give at least one")
    for year, count in frames.items():
        if not 1 <= year <= 9999:
            raise UsageError(f"synthetic weather: year {year}", hint="from 1 to 9999")
        if count < 1:
            raise UsageError(f"synthetic weather: {count} frames in {year}", hint="give 1 or more")
    if compression is not None and compression not in COMPRESSIONS:
        raise UsageError(
            f"compression is {compression!r}", hint=f"expected {', '.join(COMPRESSIONS)} or none"
        )
