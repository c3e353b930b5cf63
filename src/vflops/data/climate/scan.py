"""Every value of the years read once: moments of each frame, and what is not finite."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vflops.data.climate.field_names import CHANNELS
from vflops.data.climate.frame_source import FrameSource, Unreadable
from vflops.data.climate.moments import Moments, of_rows
from vflops.data.climate.years import Year
from vflops.data.process_pool import OnProgress, Reporter, all_of, silent, usable_cpus

_TASK_BYTES = 1 << 30
_SMALL_BYTES = 1 << 28
"""Less is read sooner than other processes start."""


@dataclass(frozen=True)
class FrameMoments:
    """Moments of some frames in their order: arrays (frames, 16)."""

    frames: tuple[int, ...]
    moments: Moments
    bad: dict[int, str]
    """Frames that cannot be used, with the reason; their moments mean nothing."""

    def good(self) -> Moments | None:
        """All that can be used as one; None where there is nothing."""
        keep = [place for place, frame in enumerate(self.frames) if frame not in self.bad]
        if not keep:
            return None
        of = self.moments
        return Moments(of.count, of.mean[keep], of.squares[keep]).pooled(0)


class Gatherer:
    """Collects moments of rows as pieces are read, in any order."""

    def __init__(self, source: FrameSource, start: int, stop: int) -> None:
        self._source, self._start = source, start
        shape = stop - start, len(CHANNELS), source.height
        self._mean: NDArray[np.float64] = np.zeros(shape)
        self._squares: NDArray[np.float64] = np.zeros(shape)
        self._bad: dict[int, str] = {}

    def add(self, frame: int, row: int, fields: NDArray[np.float32]) -> None:
        """Count rows of one frame, (16, rows, width)."""
        rows = of_rows(fields)
        place = frame - self._start, slice(None), slice(row, row + fields.shape[1])
        self._mean[place], self._squares[place] = rows.mean, rows.squares

    def unreadable(self, error: Unreadable) -> None:
        """Note frames that cannot be read."""
        self._bad |= dict.fromkeys(error.frames, f"cannot be read: {error.reason}")

    def done(self) -> FrameMoments:
        """What was gathered, with frames that cannot be used named."""
        rows = Moments(self._source.width, self._mean, self._squares)
        with np.errstate(invalid="ignore"):
            moments = rows.pooled(2)
        bad = dict(self._bad)
        for place in np.flatnonzero(~moments.usable.all(axis=1)).tolist():
            of = Moments(moments.count, moments.mean[place], moments.squares[place])
            bad.setdefault(self._start + place, unusable(of))
        frames = range(self._start, self._start + len(moments.mean))
        return FrameMoments(tuple(frames), moments, dict(sorted(bad.items())))


def unusable(frame: Moments) -> str:
    """What is wrong with the values of a frame, with its channels by name."""
    reasons = []
    for what, found in (
        ("NaN or infinite values", ~frame.finite),
        ("fill values (1e20 or more)", frame.finite & frame.filled),
        ("one value throughout", frame.flat & ~frame.filled),
    ):
        if found.any():
            names = [CHANNELS[channel] for channel in np.flatnonzero(found)]
            reasons.append(f"{what} in {', '.join(names)}")
    return "; ".join(reasons)


Task = tuple[FrameSource, int, int]


def scan(
    years: Sequence[Year], *, workers: int | None = None, on_progress: OnProgress = silent
) -> dict[int, FrameMoments]:
    """Moments and bad frames of every year, all of it read."""
    tasks: list[Task] = []
    of_year = []
    for year in years:
        for start, stop in year.source.ranges(max(1, _TASK_BYTES // year.source.frame_bytes)):
            tasks.append((year.source, start, stop))
            of_year.append(year.year)
    found = all_of(
        _look,
        tasks,
        workers=workers or workers_for(years),
        total=sum(year.frames for year in years),
        on_progress=on_progress,
        done="parts are read",
    )
    for year in years:
        year.source.refuse_changed()  # since its part was read
    parts: dict[int, list[FrameMoments]] = {year.year: [] for year in years}
    for number, part in zip(of_year, found, strict=True):
        parts[number].append(part)
    return {number: _joined(of) for number, of in parts.items()}


def workers_for(years: Sequence[Year]) -> int:
    """Processes that reading these years is worth."""
    small = sum(year.frames * year.source.frame_bytes for year in years) <= _SMALL_BYTES
    return 1 if small else usable_cpus()


def _look(task: Task, report: Reporter) -> FrameMoments:
    source, start, stop = task
    gatherer = Gatherer(source, start, stop)
    while start < stop:
        try:
            for piece in source.pieces(start, stop):
                for place, fields in enumerate(piece.fields):
                    gatherer.add(piece.frame + place, piece.row, fields)
                if piece.row + piece.fields.shape[2] == source.height:
                    start = piece.frame + len(piece.fields)
                    report(len(piece.fields))
        except Unreadable as error:
            gatherer.unreadable(error)
            report(len(error.frames))
            start = error.frames.stop
    return gatherer.done()


def _joined(parts: Sequence[FrameMoments]) -> FrameMoments:
    first = parts[0].moments
    moments = Moments(
        first.count,
        np.concatenate([part.moments.mean for part in parts]),
        np.concatenate([part.moments.squares for part in parts]),
    )
    frames = tuple(frame for part in parts for frame in part.frames)
    return FrameMoments(frames, moments, {k: v for part in parts for k, v in part.bad.items()})
