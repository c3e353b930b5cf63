"""Check a folder of years: read every value, report what is wrong, and keep the statistics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import ClassVar

import numpy as np

from vflops.data.climate import channel_statistics
from vflops.data.climate.box_rows import Order, column_names, repair_boxes
from vflops.data.climate.field_names import CHANNELS, CLASSES
from vflops.data.climate.frame_index import LeftOut
from vflops.data.climate.scan import FrameMoments, scan
from vflops.data.climate.year_split import split_years
from vflops.data.climate.years import ClimateYears, Year, survey
from vflops.data.data_report import DataReport
from vflops.data.process_pool import OnProgress, no_progress
from vflops.errors import UsageError, VflopsError
from vflops.record.files.document import Data


class YearReport(Data):
    """The content of the file of one year."""

    file: str
    frames: int
    readable: int
    """Frames whose values are all present and finite."""
    boxes: dict[str, int]
    """Number of usable boxes by class."""
    without_boxes: int
    """Number of frames without a box."""
    order: str
    """The order of the box columns in the file."""


class Repeated(Data):
    """A frame whose values all equal those of a frame of another year."""

    file: str
    frame: int
    same_file: str
    """The file of the other year."""
    same_frame: int
    """The number of the equal frame in ``same_file``."""


class ChannelReport(Data):
    """A channel over all readable years, in the file's unit."""

    mean: float
    std: float


class ClimateReport(DataReport):
    """The result of reading every value of a folder of years."""

    schema_name: ClassVar[str] = "vflops.climate-report"

    height: int
    width: int
    years: dict[int, YearReport]
    reference_split: dict[str, tuple[int, ...]] | None
    """The years of each split. None if there are fewer than three years, or if a file was refused:
    it may hold one of the last years, on which the split depends."""
    channels: dict[str, ChannelReport]
    refused: tuple[str, ...]
    """Files that cannot be used, with the reason and the hint."""
    bad_frames: tuple[LeftOut, ...]
    bad_boxes: tuple[LeftOut, ...]
    repeated: tuple[Repeated, ...]


def check(
    path: Path,
    *,
    box_order: Order | None = None,
    workers: int | None = None,
    on_progress: OnProgress = no_progress,
) -> ClimateReport:
    """Read every value of the years in ``path`` and report what is there and what is wrong."""
    folder, faults = survey(path, box_order)
    if not folder.years:
        raise _merged_error(faults, path)
    scanned = scan(folder.years, workers=workers, on_progress=on_progress)
    good = {number: year.usable_moments() for number, year in scanned.items()}
    usable = {number: moments for number, moments in good.items() if moments is not None}
    with suppress(VflopsError):  # a failure to store statistics is not a fault of the data
        channel_statistics.store(folder, usable)
    total = channel_statistics.merge(list(usable.values())) if usable else None
    bad_frames = [
        LeftOut(file=year.name, frame=frame, reason=reason)
        for year in folder.years
        for frame, reason in scanned[year.year].bad.items()
    ]
    bad_boxes = [box for year in folder.years for box in _bad_boxes(year)]
    repeated = _repeated(folder.years, scanned)
    years = {year.year: _year_report(year, scanned[year.year]) for year in folder.years}
    reference = None if faults else _reference_split(folder)
    refused = [f"{error.message} ({error.hint})" for error in faults]
    problems = _problems(refused, bad_frames, bad_boxes, repeated)
    constant = [] if total is None else [CHANNELS[i] for i in np.flatnonzero(total.std == 0)]
    if constant:
        problems.append(f"channels are constant: {', '.join(constant)}")
    return ClimateReport(
        source=str(path),
        ok=not problems,
        problems=tuple(problems),
        notes=(*_notes(folder, complete=not faults), *_missing_classes(years, reference)),
        height=folder.height,
        width=folder.width,
        years=years,
        reference_split=reference,
        channels={
            name: ChannelReport(mean=float(total.mean[i]), std=float(total.std[i]))
            for i, name in enumerate(CHANNELS)
        }
        if total is not None
        else {},
        refused=tuple(refused),
        bad_frames=tuple(bad_frames),
        bad_boxes=tuple(bad_boxes),
        repeated=tuple(repeated),
    )


def _merged_error(faults: Sequence[VflopsError], path: Path) -> VflopsError:
    """Return one error for a folder without a usable file."""
    if len(faults) == 1:
        return faults[0]
    hints = dict.fromkeys(error.hint for error in faults if error.hint)
    messages = "; ".join(error.message for error in faults)
    return UsageError(f"no file of {path} can be used: {messages}", hint="; ".join(hints))


def _year_report(year: Year, scanned: FrameMoments) -> YearReport:
    height, width = year.source.height, year.source.width
    boxes_by_frame = [
        repair_boxes(year.boxes(frame), height, width)[0] for frame in range(year.frames)
    ]
    labels = np.concatenate([rows[:, 4] for rows in boxes_by_frame])
    return YearReport(
        file=year.name,
        frames=year.frames,
        readable=year.frames - len(scanned.bad),
        boxes={name: int((labels == number).sum()) for number, name in enumerate(CLASSES)},
        without_boxes=sum(not len(rows) for rows in boxes_by_frame),
        order=column_names(year.order) if year.order else "",
    )


def _bad_boxes(year: Year) -> list[LeftOut]:
    height, width = year.source.height, year.source.width
    return [
        LeftOut(file=year.name, frame=frame, reason=reason.rpartition(": ")[0])
        for frame in range(year.frames)
        for reason in repair_boxes(year.boxes(frame), height, width)[1]
    ]


def _repeated(years: Sequence[Year], scanned: Mapping[int, FrameMoments]) -> list[Repeated]:
    """Return the frames that also occur in an earlier year, because they reward memorising.

    Frames count as equal if the float64 mean and variance of every channel are equal.
    """
    seen: dict[bytes, tuple[Year, int]] = {}
    repeated = []
    for year in years:
        frames = scanned[year.year]
        for i, frame in enumerate(frames.frames):
            if frame in frames.bad:
                continue
            key = frames.moments.mean[i].tobytes() + frames.moments.squares[i].tobytes()
            first_year, first_frame = seen.setdefault(key, (year, frame))
            if first_year is not year:
                repeated.append(
                    Repeated(
                        file=year.name,
                        frame=frame,
                        same_file=first_year.name,
                        same_frame=first_frame,
                    )
                )
    return repeated


def _problems(
    refused: Sequence[str],
    bad_frames: Sequence[LeftOut],
    bad_boxes: Sequence[LeftOut],
    repeated: Sequence[Repeated],
) -> list[str]:
    problems = list(refused)
    for one, many, cases in (
        ("frame cannot be used", "frames cannot be used", bad_frames),
        ("box cannot be used as it is", "boxes cannot be used as they are", bad_boxes),
        ("frame is also in another year", "frames are also in another year", repeated),
    ):
        if cases:
            first = f"the first in {cases[0].file}, frame {cases[0].frame}"
            problems.append(f"{len(cases):,} {one if len(cases) == 1 else many}, {first}")
    return problems


def _notes(folder: ClimateYears, complete: bool) -> list[str]:
    notes = [note for year in folder.years for note in year.notes]
    if folder.others:
        notes.append(f"HDF5 files with other names are ignored: {', '.join(folder.others[:3])}")
    if not complete:
        notes.append(
            "the reference split is unknown, because a refused file may hold one of its years"
        )
    elif _reference_split(folder) is None:
        notes.append(
            "the reference split needs 3 years: the last for testing, the one before it for "
            "validation, the others for training"
        )
    return notes


def _missing_classes(
    years: Mapping[int, YearReport], split: Mapping[str, Sequence[int]] | None
) -> list[str]:
    """Return a note on classes without a box in the validation years of the reference split."""
    counts = [years[number].boxes for number in (split or {}).get("validation", ())]
    missing = [name for name in CLASSES if counts and not any(boxes[name] for boxes in counts)]
    return missing_class_notes(missing)


def missing_class_notes(classes: Sequence[str]) -> list[str]:
    """Return the note for classes without a box in validation, if there are any."""
    if not classes:
        return []
    return [f"validation has no {', no '.join(classes)}: mAP is computed over the other classes"]


def _reference_split(folder: ClimateYears) -> dict[str, tuple[int, ...]] | None:
    try:
        return split_years(folder.path, folder.numbers).by_name
    except UsageError:
        return None
