"""Checks a folder of years: every value read, all that is odd named; statistics are kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import ClassVar

import numpy as np

from vflops.data.climate import channel_statistics
from vflops.data.climate.box_rows import Order, mended, words
from vflops.data.climate.field_names import CHANNELS, CLASSES
from vflops.data.climate.frame_index import LeftOut
from vflops.data.climate.scan import FrameMoments, scan
from vflops.data.climate.year_split import split_years
from vflops.data.climate.years import ClimateYears, Year, survey
from vflops.data.process_pool import OnProgress, silent
from vflops.errors import UsageError, VflopsError
from vflops.record.files.document import Data, Document


class YearReport(Data):
    """What was found in the file of a year."""

    file: str
    frames: int
    readable: int
    """Frames whose every value is there and finite."""
    boxes: dict[str, int]
    """By class; those that cannot be used are not counted."""
    without_boxes: int
    """Frames."""
    order: str
    """Of the columns of its boxes."""


class Repeated(Data):
    """A frame that is, value for value, also in another year."""

    file: str
    frame: int
    same_file: str
    same_frame: int


class ChannelReport(Data):
    """A channel over all years that can be read, in the file's unit."""

    mean: float
    std: float


class ClimateReport(Document):
    """A folder of years, every value seen; ``ok`` when nothing in it would harm a run."""

    schema_name: ClassVar[str] = "vflops.climate-report"

    source: str
    ok: bool
    problems: tuple[str, ...]
    """Why it is not ok, in words."""
    notes: tuple[str, ...]
    """What is odd but harmless."""
    height: int
    width: int
    years: dict[int, YearReport]
    reference_split: dict[str, tuple[int, ...]] | None
    """None where there are fewer than three years, or a file was refused: it may be one of them."""
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
    on_progress: OnProgress = silent,
) -> ClimateReport:
    """Read every value of the years in ``path`` and say what is there and what is wrong."""
    folder, faults = survey(path, box_order)
    if not folder.years:
        raise _all_of(faults, path)
    found = scan(folder.years, workers=workers, on_progress=on_progress)
    good = {number: one.good() for number, one in found.items()}
    with suppress(VflopsError):  # no place to keep them is nothing against the data
        channel_statistics.keep(folder, {n: one for n, one in good.items() if one is not None})
    usable = [one for one in good.values() if one is not None]
    total = channel_statistics.joined(usable) if usable else None
    bad_frames = [
        LeftOut(file=year.name, frame=frame, reason=reason)
        for year in folder.years
        for frame, reason in found[year.year].bad.items()
    ]
    bad_boxes = [one for year in folder.years for one in _bad_boxes(year)]
    repeated = _repeated(folder.years, found)
    years = {year.year: _of_year(year, found[year.year]) for year in folder.years}
    reference = None if faults else _reference(folder)
    refused = [f"{error.message} ({error.hint})" for error in faults]
    problems = _problems(refused, bad_frames, bad_boxes, repeated)
    flat = [] if total is None else [CHANNELS[i] for i in np.flatnonzero(total.std == 0)]
    if flat:
        problems.append(f"channels have one value throughout: {', '.join(flat)}")
    return ClimateReport(
        source=str(path),
        ok=not problems,
        problems=tuple(problems),
        notes=(*_notes(folder, whole=not faults), *_unjudged(years, reference)),
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


def _all_of(faults: Sequence[VflopsError], path: Path) -> VflopsError:
    """One error for a folder of which no file can be used."""
    if len(faults) == 1:
        return faults[0]
    hints = dict.fromkeys(error.hint for error in faults if error.hint)
    said = "; ".join(error.message for error in faults)
    return UsageError(f"no file of {path} can be used: {said}", hint="; ".join(hints))


def _of_year(year: Year, found: FrameMoments) -> YearReport:
    height, width = year.source.height, year.source.width
    kept = [mended(year.boxes(frame), height, width)[0] for frame in range(year.frames)]
    labels = np.concatenate([rows[:, 4] for rows in kept])
    return YearReport(
        file=year.name,
        frames=year.frames,
        readable=year.frames - len(found.bad),
        boxes={name: int((labels == number).sum()) for number, name in enumerate(CLASSES)},
        without_boxes=sum(not len(rows) for rows in kept),
        order=words(year.order) if year.order else "",
    )


def _bad_boxes(year: Year) -> list[LeftOut]:
    height, width = year.source.height, year.source.width
    return [
        LeftOut(file=year.name, frame=frame, reason=reason.rpartition(": ")[0])
        for frame in range(year.frames)
        for reason in mended(year.boxes(frame), height, width)[1]
    ]


def _repeated(years: Sequence[Year], found: Mapping[int, FrameMoments]) -> list[Repeated]:
    """Frames of one year that another has too: a network that learnt them would look good.

    Sixteen means and spreads in float64 are equal for equal fields and for no others.
    """
    seen: dict[bytes, tuple[Year, int]] = {}
    repeated = []
    for year in years:
        of = found[year.year]
        for place, frame in enumerate(of.frames):
            if frame in of.bad:
                continue
            key = of.moments.mean[place].tobytes() + of.moments.squares[place].tobytes()
            other, same = seen.setdefault(key, (year, frame))
            if other is not year:
                repeated.append(
                    Repeated(file=year.name, frame=frame, same_file=other.name, same_frame=same)
                )
    return repeated


def _problems(
    refused: Sequence[str],
    bad_frames: Sequence[LeftOut],
    bad_boxes: Sequence[LeftOut],
    repeated: Sequence[Repeated],
) -> list[str]:
    problems = list(refused)
    for what, found in (
        ("frames cannot be used", [(one.file, one.frame) for one in bad_frames]),
        ("boxes cannot be used as they are", [(one.file, one.frame) for one in bad_boxes]),
        ("frames are also in another year", [(one.file, one.frame) for one in repeated]),
    ):
        if found:
            file, frame = found[0]
            problems.append(f"{len(found):,} {what}, the first in {file}, frame {frame}")
    return problems


def _notes(folder: ClimateYears, whole: bool) -> list[str]:
    notes = [note for year in folder.years for note in year.notes]
    if folder.others:
        notes.append(f"HDF5 files of other names are left out: {', '.join(folder.others[:3])}")
    if not whole:
        notes.append("no split is shown: which years are the last is open while some are refused")
    elif _reference(folder) is None:
        notes.append("the reference split needs 3 years: the last tests, the one before validates")
    return notes


def _unjudged(
    years: Mapping[int, YearReport], split: Mapping[str, Sequence[int]] | None
) -> list[str]:
    """Classes that the validation years of the reference split do not have."""
    of = [years[number].boxes for number in (split or {}).get("validation", ())]
    return no_truth([name for name in CLASSES if of and not any(one[name] for one in of)])


def no_truth(classes: Sequence[str]) -> list[str]:
    """The note for classes without a box in validation, if there are any."""
    if not classes:
        return []
    return [f"validation has no {', no '.join(classes)}: mAP will be that of the other classes"]


def _reference(folder: ClimateYears) -> dict[str, tuple[int, ...]] | None:
    try:
        return split_years(folder.path, folder.numbers).by_name
    except UsageError:
        return None
