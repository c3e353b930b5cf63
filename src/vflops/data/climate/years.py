"""Years as published: ``climo_YYYY.h5`` with ``images`` (N, 16, H, W) and ``boxes`` (N, 15, 5).

Opening reads the boxes of all years but no fields. It takes a second and finds errors in files,
shapes and boxes before hours of reading.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vflops.data.climate import box_rows
from vflops.data.climate.box_rows import PUBLISHED, Order
from vflops.data.climate.field_names import CHANNELS, MAX_BOXES
from vflops.data.climate.frame_source import FrameSource, Version, open_hdf5, version_of
from vflops.data.climate.hdf5_arrays import array_of, require_fully_written
from vflops.data.data_kind import require_folder
from vflops.errors import UsageError, VflopsError

_NAME = re.compile(r"climo_(\d{4})\.(h5|hdf5)", re.IGNORECASE)
_SUFFIXES = (".h5", ".hdf5")
_LAYOUT = "expected {}/climo_1979.h5 and so on, one file per year"


@dataclass(frozen=True)
class Year:
    """One file: a source of fields, and its boxes in memory."""

    year: int
    source: FrameSource
    rows: NDArray[np.float64]
    """Boxes (frames, rows, 5) in the published order, padded with rows of -1."""
    order: Order | None
    """The column order in the file; None if the values fit several orders."""
    notes: tuple[str, ...] = ()

    @property
    def path(self) -> Path:
        """The file."""
        return self.source.path

    @property
    def name(self) -> str:
        """The file's name."""
        return self.source.path.name

    @property
    def bytes(self) -> int:
        """The file's size."""
        return self.source.version[0]

    @property
    def time_ns(self) -> int:
        """The modification time of the file."""
        return self.source.version[1]

    @property
    def frames(self) -> int:
        """Number of frames."""
        return self.source.frames

    def boxes(self, frame: int) -> NDArray[np.float64]:
        """Return the unrepaired boxes of a frame, (n, 5) in the published order."""
        rows = self.rows[frame]
        return np.asarray(rows[box_rows.is_box(rows)])

    def identity(self) -> list[Any]:
        """Return what identifies the file without reading its fields."""
        boxes_hash = hashlib.sha256(np.ascontiguousarray(self.rows).tobytes()).hexdigest()
        return [self.name, self.bytes, self.time_ns, self.order, boxes_hash]


@dataclass(frozen=True)
class ClimateYears:
    """The years of a folder, in order."""

    path: Path
    years: tuple[Year, ...]
    others: tuple[str, ...] = ()
    """HDF5 files with other names, which are ignored."""

    @classmethod
    def open(cls, path: Path, box_order: Order | None = None) -> ClimateYears:
        """Open the years in ``path``; raise an error if a file cannot be used."""
        years, faults = survey(path, box_order)
        if faults:
            raise faults[0]
        return years

    @property
    def height(self) -> int:
        """Rows of a frame, from south to north."""
        return self.years[0].source.height

    @property
    def width(self) -> int:
        """Columns of a frame."""
        return self.years[0].source.width

    @property
    def numbers(self) -> tuple[int, ...]:
        """The years, 1979 and so on."""
        return tuple(year.year for year in self.years)

    def year(self, number: int) -> Year:
        """Return the year ``number``."""
        return next(year for year in self.years if year.year == number)


def survey(
    path: Path, box_order: Order | None = None
) -> tuple[ClimateYears, Sequence[VflopsError]]:
    """Return the years that can be used, and the errors of those that cannot."""
    files, others = _files(path)
    years: list[Year] = []
    faults: list[VflopsError] = []
    for number, file in sorted(files.items()):
        try:
            like = years[0].source if years else None
            years.append(open_year(file, number, box_order, like))
        except VflopsError as error:
            faults.append(error)
    try:
        years = _resolve_orders(years)
    except VflopsError as error:
        faults.append(error)
    return ClimateYears(path, tuple(years), tuple(others)), faults


def _files(path: Path) -> tuple[dict[int, Path], list[str]]:
    layout = _LAYOUT.format(path)
    require_folder(path, "years", layout)
    files: dict[int, Path] = {}
    others = []
    for entry in sorted(path.iterdir()):
        if entry.name.startswith(".") or entry.suffix.lower() not in _SUFFIXES:
            continue
        match = _NAME.fullmatch(entry.name)
        if match is None and entry.name.lower().startswith("climo"):
            raise UsageError(
                f"{entry} has no year of four digits in its name",
                hint="rename it to climo_YYYY.h5, or move it out of the folder",
            )
        if match is None:
            others.append(entry.name)
            continue
        year = int(match[1])
        if year in files:
            raise UsageError(
                f"{path} has the year {year} twice: {files[year].name} and {entry.name}",
                hint="move one of them out of the folder",
            )
        files[year] = entry
    if not files:
        holds = f"; it holds {', '.join(others[:3])}" if others else ""
        raise UsageError(f"{path} has no file climo_YYYY.h5{holds}", hint=layout)
    return files, others


def open_year(
    path: Path, year: int, box_order: Order | None = None, like: FrameSource | None = None
) -> Year:
    """Open the file of a year and check everything but its fields.

    Frames must have the size of those in ``like``.
    """
    with open_hdf5(path) as file:
        version = version_of(path)
        images, rows = array_of(file, "images", path), array_of(file, "boxes", path)
        source = _source(images, path, version)
        _check_frame_size(source, like)  # before boxes, which would not fit any order
        raw = _rows(rows, source)
        dtype = images.dtype
    has_box = box_rows.is_box(raw)
    _check_box_counts(has_box, path)
    if not has_box.any():
        raise UsageError(
            f"{path} has no boxes in any of its {source.frames} frames: all rows are -1",
            hint="its labels are missing: get the file again, or move it out of the folder",
        )
    box_rows.check_units(raw[has_box], source.height, source.width, str(path), box_order)
    recognised = (
        box_rows.recognise(raw[has_box], source.height, source.width, str(path))
        if (box_order is None)
        else box_rows.RecognisedOrder(box_order, int(has_box.sum()))
    )
    if box_rows.is_suspicious(recognised, source.height, source.width):
        raise box_rows.ambiguous_order(str(path), recognised.boxes)
    notes = []
    if dtype.itemsize == 8:
        notes.append(f"{path.name}: images are float64, read as float32")
    order = recognised.order
    return Year(
        year, source, box_rows.reorder_columns(raw, order or PUBLISHED), order, tuple(notes)
    )


def _source(images: Any, path: Path, version: Version) -> FrameSource:
    number = len(CHANNELS)
    shape = _shape(images)
    if len(shape) != 4 or shape[1] != number or not all(shape):
        raise UsageError(
            f"{path}: images are {_sizes(shape)}, expected (frames, {number}, height, width), "
            "none of them 0",
            hint=f"the channels in order: {', '.join(CHANNELS)}",
        )
    if images.dtype.kind != "f" or images.dtype.itemsize not in (4, 8):
        raise UsageError(
            f"{path}: images are {images.dtype}, expected float32",
            hint="get the file as published: half precision ends at 65,504, below a pressure of "
            "100,000 Pa, and the scale of integers is unknown",
        )
    require_fully_written(images, "images", path)
    return FrameSource(path, shape[0], shape[2], shape[3], images.chunks, version)


def _rows(rows: Any, source: FrameSource) -> NDArray[np.float64]:
    shape = _shape(rows)
    if len(shape) != 3 or shape[0] != source.frames or shape[2] != 5:
        raise UsageError(
            f"{source.path}: boxes are {_sizes(shape)}, expected ({source.frames}, {MAX_BOXES}, "
            "5), a row of five numbers per box",
            hint="images and boxes must have the same number of frames: get the file again",
        )
    if rows.dtype.kind not in "iuf":
        raise UsageError(
            f"{source.path}: boxes are {rows.dtype}, expected int32", hint="get the file again"
        )
    require_fully_written(rows, "boxes", source.path)
    try:
        return np.asarray(rows[()], np.float64)
    except OSError as error:
        raise UsageError(
            f"cannot read the boxes of {source.path}: {error}", hint="get the file again"
        ) from error


def _shape(array: Any) -> tuple[int, ...]:
    """Return the shape of an array; empty for one without a shape."""
    return () if array.shape is None else tuple(array.shape)


def _sizes(shape: Sequence[int]) -> str:
    if not shape:
        return "without a shape"
    return "(" + ", ".join(str(size) for size in shape) + ")"


def _check_box_counts(has_box: NDArray[np.bool_], path: Path) -> None:
    counts = has_box.sum(axis=1)
    frame = int(np.argmax(counts))
    if counts[frame] > MAX_BOXES:
        raise UsageError(
            f"{path}: frame {frame} has {counts[frame]} boxes, at most {MAX_BOXES} are allowed",
            hint=f"keep the {MAX_BOXES} that matter most, and fill the other rows with -1",
        )


def _check_frame_size(source: FrameSource, like: FrameSource | None) -> None:
    if like is not None and (source.height, source.width) != (like.height, like.width):
        raise UsageError(
            f"{source.path} has frames of {source.height}x{source.width}, "
            f"but {like.path.name} has {like.height}x{like.width}",
            hint="all years of a folder need the same resolution: move the others elsewhere",
        )


def _resolve_orders(years: Sequence[Year]) -> list[Year]:
    """Replace unknown orders by that of the other years, or else by the published one."""
    known = Counter(year.order for year in years if year.order is not None)
    if any(year.order is None for year in years) and len(known) > 1:
        unrecognised = next(year for year in years if year.order is None)
        raise box_rows.ambiguous_order(
            str(unrecognised.path), int(box_rows.is_box(unrecognised.rows).sum())
        )
    common = next(iter(known), PUBLISHED)
    resolved = []
    for year in years:
        if year.order is None:
            note = (
                f"{year.name}: box order cannot be recognised from the values; it is assumed to be "
                + (
                    box_rows.column_names(common)
                    + (", as in the other years" if known else ", as published")
                )
            )
            rows = box_rows.reorder_columns(year.rows, common)
            year = replace(year, rows=rows, order=common, notes=(*year.notes, note))
        elif year.order != PUBLISHED:
            note = f"{year.name}: boxes are {box_rows.column_names(year.order)}, converted"
            year = replace(year, notes=(*year.notes, note))
        resolved.append(year)
    return resolved
