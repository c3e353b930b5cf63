"""Synthetic frames in the forms that real ones have: a folder of HDF5 years, or packed.

Both hold the same frames and appear whole: made beside their place, then renamed. A folder of years
whose making was killed goes on where it stopped, a year at a time.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vflops.data.climate.field_names import CHANNELS, MOST_BOXES
from vflops.data.climate.frame_writer import FrameWriter
from vflops.data.climate.weather import OFFSET, SCALE, Frame, WeatherRecipe, draw
from vflops.data.packed import MARK, digest
from vflops.data.process_pool import OnProgress, Reporter, silent, spread, usable_cpus
from vflops.data.workspace import (
    occupied,
    partial_of,
    real_place,
    refuse_fixed,
    refuse_occupied,
)
from vflops.errors import Interrupted, UsageError
from vflops.record.files import atomic
from vflops.record.files.cache import made_once

ORIGIN = "synthetic weather"
FIRST_YEAR = 1979
FRAMES_A_YEAR = 1460
"""Four a day, as published."""
COMPRESSIONS = ("gzip", "lzf")

_SMALL_PIXELS = 1 << 21  # below, drawn sooner than other processes start
_PIECE_BYTES = 1 << 24  # of frames that one process draws and hands over
_WAVE_BYTES = 1 << 30  # of frames that may wait for those before them


def years_of(train: int, validation: int, test: int) -> dict[str, dict[int, int]]:
    """Frames by year for each split: the last year tests, the one before validates."""
    for name, frames in (("train on", train), ("validate with", validation), ("test with", test)):
        if frames < 1:
            raise UsageError(f"synthetic weather: {frames} frames to {name}", hint="give 1 or more")
    whole, rest = divmod(train, FRAMES_A_YEAR)
    lengths = [FRAMES_A_YEAR] * whole + [rest] * (rest > 0)
    last = FIRST_YEAR + len(lengths)
    return {
        "train": {FIRST_YEAR + number: frames for number, frames in enumerate(lengths)},
        "validation": {last: validation},
        "test": {last + 1: test},
    }


def write_years(
    recipe: WeatherRecipe,
    folder: Path,
    frames: Mapping[int, int],
    *,
    compression: str | None = None,
    on_progress: OnProgress = silent,
    workers: int | None = None,
) -> list[Path]:
    """``climo_YYYY.h5`` in a new ``folder`` for each year of ``frames``, laid out as published."""
    folder = real_place(folder)
    refuse_occupied(folder)
    refuse_fixed(folder)
    _check(frames, compression)
    lengths = dict(sorted(frames.items()))
    partial = _begin(folder, recipe, lengths)
    tasks = [
        _Year(recipe, partial / f"climo_{year:04d}.h5", year, count, compression)
        for year, count in lengths.items()
    ]
    total = sum(lengths.values())
    number = workers or _workers(recipe, total)
    work = spread(_write_year, tasks, workers=number, total=total, on_progress=on_progress)
    with closing(work), _stopped_by_hand("the same command goes on after the last whole year"):
        names = [tasks[position].path.name for position, _ in work]
    for left in partial.glob(".*.tmp"):
        left.unlink(missing_ok=True)  # of a process that was killed
    try:
        partial.replace(folder)
    except OSError as error:
        raise atomic.cannot_write(folder, error) from error
    atomic.sync_folder(folder.parent)
    return [folder / name for name in sorted(names)]


def cached(
    recipe: WeatherRecipe,
    train: int,
    validation: int,
    test: int,
    on_progress: OnProgress = silent,
) -> Path:
    """The folder of these frames, packed by halves, in the cache; made if it is not there."""
    years = years_of(train, validation, test)
    about = {**recipe.facts(), "frames": {split: sum(of.values()) for split, of in years.items()}}
    # The split is in the name: a cache may still hold frames that were not marked with it.
    name = f"weather-{digest([about, 'reference split'])[:16]}"

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
            recipe=about,
            years={split: tuple(of) for split, of in years.items()},
            reference_split=True,
        ) as writer:
            for split, frame in _drawn(recipe, years, on_progress):
                writer.add(split, frame.fields, frame.boxes)
            writer.finish()

    with _stopped_by_hand("the same command begins again"):
        return made_once(name, make)


def _drawn(
    recipe: WeatherRecipe, years: Mapping[str, Mapping[int, int]], on_progress: OnProgress
) -> Iterator[tuple[str, Frame]]:
    """Every frame with its split, in order; drawn by several processes where that pays."""
    frame_bytes = recipe.height * recipe.width * len(CHANNELS) * 4
    step = max(1, _PIECE_BYTES // frame_bytes)
    pieces = [
        _Piece(recipe, split, year, start, min(step, count - start))
        for split, of_split in years.items()
        for year, count in of_split.items()
        for start in range(0, count, step)
    ]
    total = sum(piece.count for piece in pieces)
    number = _workers(recipe, total)
    # One process draws as frames are taken; several would run ahead of who takes them.
    wave = len(pieces) if number == 1 else max(2 * number, _WAVE_BYTES // (step * frame_bytes))
    done = 0
    for first in range(0, len(pieces), wave):
        batch = pieces[first : first + wave]
        for piece, frames in _in_order(batch, number, _later(on_progress, done, total)):
            yield from ((piece.split, frame) for frame in frames)
        done += sum(piece.count for piece in batch)


def _later(on_progress: OnProgress, done: int, total: int) -> OnProgress:
    return lambda more, _: on_progress(done + more, total)


def _in_order(
    pieces: Sequence[_Piece], workers: int, on_progress: OnProgress
) -> Iterator[tuple[_Piece, list[Frame]]]:
    total = sum(piece.count for piece in pieces)
    ready: dict[int, list[Frame]] = {}
    wanted = 0
    work = spread(_draw_piece, pieces, workers=workers, total=total, on_progress=on_progress)
    with closing(work):
        for position, frames in work:
            ready[position] = frames
            while wanted in ready:
                yield pieces[wanted], ready.pop(wanted)
                wanted += 1


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
class _Year:
    """A file that one process writes."""

    recipe: WeatherRecipe
    path: Path
    year: int
    frames: int
    compression: str | None


def _write_year(task: _Year, report: Reporter) -> None:
    if task.path.exists():  # of a making that was stopped: renamed when it was whole
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
    except RuntimeError as error:  # what h5py raises where a write fails late
        raise atomic.cannot_write(task.path, OSError(str(error))) from error
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def _fill(path: Path, task: _Year, report: Reporter) -> None:
    """Write a year to ``path`` frame by frame; a field is a chunk where it is compressed."""
    import h5py

    size = (task.recipe.height, task.recipe.width)
    options: dict[str, Any] = {}
    if task.compression is not None:
        options = {"chunks": (1, 1, *size), "compression": task.compression, "shuffle": True}
        if task.compression == "gzip":
            options["compression_opts"] = 1  # noise does not get smaller for more work
    with h5py.File(path, "w", libver=("earliest", "v110")) as file:
        shape = (task.frames, len(CHANNELS), *size)
        images = file.create_dataset("images", shape, dtype="<f4", **options)
        boxes = np.full((task.frames, MOST_BOXES, 5), -1, np.int32)
        for number in range(task.frames):
            frame = draw(task.recipe, task.year, number)
            images[number] = frame.fields
            boxes[number, : len(frame.boxes)] = frame.boxes
            report()
        file.create_dataset("boxes", data=boxes, dtype="<i4")


def _workers(recipe: WeatherRecipe, frames: int) -> int:
    small = frames * recipe.height * recipe.width <= _SMALL_PIXELS
    return 1 if small else usable_cpus()


def _check(frames: Mapping[int, int], compression: str | None) -> None:
    if not frames:
        raise UsageError("synthetic weather: no years", hint="give at least one")
    for year, count in frames.items():
        if not 1 <= year <= 9999:
            raise UsageError(f"synthetic weather: year {year}", hint="from 1 to 9999")
        if count < 1:
            raise UsageError(f"synthetic weather: {count} frames in {year}", hint="give 1 or more")
    if compression is not None and compression not in COMPRESSIONS:
        raise UsageError(
            f"compression is {compression!r}", hint=f"one of {', '.join(COMPRESSIONS)}, or none"
        )


def _begin(folder: Path, recipe: WeatherRecipe, lengths: Mapping[int, int]) -> Path:
    """``folder.partial`` with its mark, new or of the same frames."""
    about = {**recipe.facts(), "frames": {f"{year:04d}": n for year, n in lengths.items()}}
    partial = partial_of(folder)
    text = atomic.json_text(about)
    mark = partial / MARK
    if occupied(partial) and not (mark.is_file() and mark.read_text(encoding="utf-8") == text):
        raise UsageError(
            f"{partial} holds something else than these frames", hint="remove it, then try again"
        )
    atomic.make_folder(partial)
    atomic.write_text(mark, text)
    return partial


@contextmanager
def _stopped_by_hand(hint: str) -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        raise Interrupted("stopped by the user", hint=hint) from None
