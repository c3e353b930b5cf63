"""Read every value of the years once, for the moments of each frame and the unusable frames."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vflops.data.climate.field_names import CHANNELS
from vflops.data.climate.frame_source import FrameSource, Unreadable
from vflops.data.climate.moments import Moments, row_moments
from vflops.data.climate.years import Year
from vflops.data.process_pool import OnProgress, Reporter, default_workers, no_progress, run_all

_TASK_BYTES = 1 << 30
_SMALL_BYTES = 1 << 28
"""Reading less than this is faster than starting other processes."""


@dataclass(frozen=True)
class FrameMoments:
    """Moments of some frames, in order: arrays (frames, 16)."""

    frames: tuple[int, ...]
    moments: Moments
    bad: dict[int, str]
    """Frames that cannot be used, with the reason; their moments are meaningless."""

    def usable_moments(self) -> Moments | None:
        """Return the merged moments of all usable frames; None if there are none."""
        keep = [i for i, frame in enumerate(self.frames) if frame not in self.bad]
        if not keep:
            return None
        moments = self.moments
        return Moments(moments.count, moments.mean[keep], moments.squares[keep]).pooled(0)


class MomentsCollector:
    """Collects the moments of rows as pieces are read, in any order."""

    def __init__(self, source: FrameSource, start: int, stop: int) -> None:
        self._source, self._start = source, start
        shape = stop - start, len(CHANNELS), source.height
        self._mean: NDArray[np.float64] = np.zeros(shape)
        self._squares: NDArray[np.float64] = np.zeros(shape)
        self._bad: dict[int, str] = {}

    def add(self, frame: int, row: int, fields: NDArray[np.float32]) -> None:
        """Add rows of one frame, (16, rows, width)."""
        rows = row_moments(fields)
        where = frame - self._start, slice(None), slice(row, row + fields.shape[1])
        self._mean[where], self._squares[where] = rows.mean, rows.squares

    def add_unreadable(self, error: Unreadable) -> None:
        """Record frames that cannot be read."""
        self._bad |= dict.fromkeys(error.frames, f"cannot be read: {error.reason}")

    def result(self) -> FrameMoments:
        """Return the moments of all frames, and why some of them are unusable."""
        rows = Moments(self._source.width, self._mean, self._squares)
        with np.errstate(invalid="ignore"):
            moments = rows.pooled(2)
        bad = dict(self._bad)
        for i in np.flatnonzero(~moments.usable.all(axis=1)).tolist():
            frame = Moments(moments.count, moments.mean[i], moments.squares[i])
            bad.setdefault(self._start + i, describe_faults(frame))
        frames = range(self._start, self._start + len(moments.mean))
        return FrameMoments(tuple(frames), moments, dict(sorted(bad.items())))


def describe_faults(frame: Moments) -> str:
    """Return what is wrong with the values of a frame, with the names of the channels."""
    reasons = []
    for what, channels in (
        ("NaN or infinite values", ~frame.finite),
        ("fill values (1e20 or more)", frame.finite & frame.filled),
        ("one value throughout", frame.flat & ~frame.filled),
    ):
        if channels.any():
            names = [CHANNELS[channel] for channel in np.flatnonzero(channels)]
            reasons.append(f"{what} in {', '.join(names)}")
    return "; ".join(reasons)


Task = tuple[FrameSource, int, int]


def scan(
    years: Sequence[Year], *, workers: int | None = None, on_progress: OnProgress = no_progress
) -> dict[int, FrameMoments]:
    """Read all years and return the moments and bad frames of each."""
    tasks: list[Task] = []
    task_years = []
    for year in years:
        for start, stop in year.source.ranges(max(1, _TASK_BYTES // year.source.frame_bytes)):
            tasks.append((year.source, start, stop))
            task_years.append(year.year)
    results = run_all(
        _scan_part,
        tasks,
        workers=workers or workers_for(years),
        total=sum(year.frames for year in years),
        on_progress=on_progress,
        done="parts are read",
        hint="no results were saved: the same command starts again from the beginning",
    )
    for year in years:
        year.source.require_unchanged()  # since its parts were read
    parts: dict[int, list[FrameMoments]] = {year.year: [] for year in years}
    for number, part in zip(task_years, results, strict=True):
        parts[number].append(part)
    return {number: _concatenate(year_parts) for number, year_parts in parts.items()}


def workers_for(years: Sequence[Year]) -> int:
    """Return the number of processes for reading these years."""
    size = sum(year.frames * year.source.frame_bytes for year in years)
    return default_workers(size, _SMALL_BYTES)


def _scan_part(task: Task, report: Reporter) -> FrameMoments:
    source, start, stop = task
    collector = MomentsCollector(source, start, stop)
    while start < stop:
        try:
            for piece in source.pieces(start, stop):
                for frame, fields in enumerate(piece.fields, piece.frame):
                    collector.add(frame, piece.row, fields)
                if piece.row + piece.fields.shape[2] == source.height:
                    start = piece.frame + len(piece.fields)
                    report(len(piece.fields))
        except Unreadable as error:
            collector.add_unreadable(error)
            report(len(error.frames))
            start = error.frames.stop
    return collector.result()


def _concatenate(parts: Sequence[FrameMoments]) -> FrameMoments:
    first = parts[0].moments
    moments = Moments(
        first.count,
        np.concatenate([part.moments.mean for part in parts]),
        np.concatenate([part.moments.squares for part in parts]),
    )
    frames = tuple(frame for part in parts for frame in part.frames)
    return FrameMoments(frames, moments, {k: v for part in parts for k, v in part.bad.items()})
