"""Synthetic frames in the same forms as real ones: a folder of HDF5 files, or packed.

Both forms hold the same frames and appear only when they are complete: they are built in
``DEST.partial``, then renamed. If writing years is stopped, the same call resumes with the first
unfinished year.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vflops.data.climate.field_names import CHANNELS, MAX_BOXES
from vflops.data.climate.frame_writer import FrameWriter
from vflops.data.climate.weather import OFFSET, SCALE, Frame, WeatherRecipe, draw
from vflops.data.destination import (
    move_into_place,
    require_replaceable,
    require_unoccupied,
    resolve_link,
)
from vflops.data.packed_index import digest
from vflops.data.process_pool import (
    OnProgress,
    Reporter,
    default_workers,
    iter_results,
    no_progress,
    run_all,
)
from vflops.data.synthetic_folder import begin_folder
from vflops.errors import Interrupted, UsageError
from vflops.record.files import atomic
from vflops.record.files.cache import cached_folder

ORIGIN = "synthetic weather"
FIRST_YEAR = 1979
FRAMES_PER_YEAR = 1460
"""Four per day, as published."""
COMPRESSIONS = ("gzip", "lzf")

_SMALL_PIXELS = 1 << 21  # drawing fewer is faster than starting other processes
_PIECE_BYTES = 1 << 24  # frames that a process draws at a time
_WAVE_BYTES = 1 << 30  # finished frames that may wait in memory for earlier ones


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
) -> Path:
    """Return the folder of these frames in the cache, in layout ``half``; create it if missing."""
    years = years_of(train, validation, test)
    counts = {split: sum(frames_by_year.values()) for split, frames_by_year in years.items()}
    full_recipe = {**recipe.as_dict(), "frames": counts}
    # The split is part of the name: a cache may hold older frames without reference_split.
    name = f"weather-{digest([full_recipe, 'reference split'])[:16]}"

    def make(folder: Path) -> None:
        with FrameWriter(
            folder,
            origin=ORIGIN,
            height=recipe.height,
            width=recipe.width,
            layout="half",
            offset=OFFSET,
            scale=SCALE,
            synthetic=True,
            recipe=full_recipe,
            years={split: tuple(frames_by_year) for split, frames_by_year in years.items()},
            reference_split=True,
        ) as writer:
            for split, frame in _draw_frames(recipe, years, on_progress):
                writer.add(split, frame.fields, frame.boxes)
            writer.finish()

    try:
        return cached_folder(name, make)
    except KeyboardInterrupt:
        raise Interrupted("stopped by the user", hint="the same command starts again") from None


def _draw_frames(
    recipe: WeatherRecipe, years: Mapping[str, Mapping[int, int]], on_progress: OnProgress
) -> Iterator[tuple[str, Frame]]:
    """Yield every frame with its split, in order; several processes draw if that is faster."""
    frame_bytes = recipe.height * recipe.width * len(CHANNELS) * 4
    step = max(1, _PIECE_BYTES // frame_bytes)
    pieces = [
        _Piece(recipe, split, year, start, min(step, count - start))
        for split, frames_by_year in years.items()
        for year, count in frames_by_year.items()
        for start in range(0, count, step)
    ]
    total = sum(piece.count for piece in pieces)
    workers = _workers(recipe, total)
    # One process draws frames on demand; several would run ahead without limit.
    wave = len(pieces) if workers == 1 else max(2 * workers, _WAVE_BYTES // (step * frame_bytes))
    done = 0
    for first in range(0, len(pieces), wave):
        batch = pieces[first : first + wave]
        for piece, frames in _in_order(batch, workers, _offset_progress(done, total, on_progress)):
            yield from ((piece.split, frame) for frame in frames)
        done += sum(piece.count for piece in batch)


def _offset_progress(done: int, total: int, on_progress: OnProgress) -> OnProgress:
    """Return a callback for work that starts when ``done`` of ``total`` is finished."""
    return lambda more, _: on_progress(done + more, total)


def _in_order(
    pieces: Sequence[_Piece], workers: int, on_progress: OnProgress
) -> Iterator[tuple[_Piece, list[Frame]]]:
    total = sum(piece.count for piece in pieces)
    ready: dict[int, list[Frame]] = {}
    next_position = 0
    work = iter_results(_draw_piece, pieces, workers=workers, total=total, on_progress=on_progress)
    with closing(work):
        for position, frames in work:
            ready[position] = frames
            while next_position in ready:
                yield pieces[next_position], ready.pop(next_position)
                next_position += 1


@dataclass(frozen=True)
class _Piece:
    """Frames of one year that one process draws."""

    recipe: WeatherRecipe
    split: str
    year: int
    start: int
    count: int


def _draw_piece(piece: _Piece, report: Reporter) -> list[Frame]:
    frames = []
    for number in range(piece.start, piece.start + piece.count):
        frames.append(draw(piece.recipe, piece.year, number))
        report()
    return frames


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
