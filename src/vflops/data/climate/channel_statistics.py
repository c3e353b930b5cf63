"""Mean and standard deviation of each channel, kept beside the data: read once, never again.

``statistics.json`` has them by year, so that another split needs no reading. A file that has
another name, size or time than it had then, and a file of statistics that was changed, count for
nothing: the year is read again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
from pydantic import Field

from vflops.data.climate.frame_index import PerChannel
from vflops.data.climate.moments import Moments
from vflops.data.climate.scan import scan
from vflops.data.climate.years import ClimateYears, Year
from vflops.data.packed import digest
from vflops.data.process_pool import OnProgress, silent
from vflops.errors import UsageError, VflopsError
from vflops.record.files import atomic
from vflops.record.files.cache import cache_folder
from vflops.record.files.document import Data, Document

STATISTICS = "statistics.json"


class YearStatistics(Data):
    """Of one file, and what it was when it was read."""

    file: str
    bytes: int
    time_ns: int
    frames: int = Field(ge=1)
    """Those that count: frames that cannot be used do not."""
    values: int = Field(ge=1)
    """Of one channel."""
    mean: PerChannel
    squares: PerChannel
    """Sums of squared deviations from the mean."""


class Statistics(Document):
    """``statistics.json``: the moments of every channel by year."""

    schema_name: ClassVar[str] = "vflops.climate-statistics"

    years: dict[int, YearStatistics]
    checksum: str
    """The SHA-256 of ``years``."""

    @classmethod
    def of(cls, years: Mapping[int, YearStatistics]) -> Statistics:
        """Statistics with their checksum."""
        return cls(years=dict(years), checksum=_checksum(years))


def _checksum(years: Mapping[int, YearStatistics]) -> str:
    return digest({str(year): one.model_dump(mode="json") for year, one in years.items()})


@dataclass(frozen=True)
class Summary:
    """Mean and standard deviation of some years, by channel."""

    mean: np.ndarray[tuple[int], np.dtype[np.float64]]
    std: np.ndarray[tuple[int], np.dtype[np.float64]]
    path: Path
    """Where they are kept."""


def statistics(
    folder: ClimateYears,
    years: Sequence[int],
    *,
    workers: int | None = None,
    on_progress: OnProgress = silent,
) -> Summary:
    """Mean and standard deviation of ``years``; only what is not known yet is read."""
    known = {
        number: one
        for number, one in fresh(folder).items()
        if one.frames == folder.year(number).frames
    }
    missing = [folder.year(number) for number in years if number not in known]
    place = _places(folder.path)[0]
    if missing:
        found = scan(missing, workers=workers, on_progress=on_progress)
        bad = next(((year, frame) for year in missing for frame in found[year.year].bad), None)
        if bad is not None:
            year, frame = bad
            raise UsageError(
                f"cannot use {year.path}: frame {frame}: {found[year.year].bad[frame]}",
                hint=f"get the file again; all that is wrong: vflops data check {folder.path}",
            )
        fresh_ones = {year.year: found[year.year].good() for year in missing}
        whole = {number: one for number, one in fresh_ones.items() if one is not None}
        place = keep(folder, whole)
        known |= {number: _of_year(folder.year(number), one) for number, one in whole.items()}
    summary = joined([moments_of(known[number]) for number in years])
    return Summary(summary.mean, summary.std, place)


def fresh(folder: ClimateYears) -> dict[int, YearStatistics]:
    """What is kept of the years of ``folder``, beside them and in the cache, and still true."""
    found: dict[int, YearStatistics] = {}
    for path in _places(folder.path):
        try:
            kept = Statistics.read(path)
        except VflopsError:
            continue  # not there, or damaged
        if kept.checksum == _checksum(kept.years):
            for year in folder.years:
                one = kept.years.get(year.year)
                if one is not None and _same(one, year):
                    found.setdefault(year.year, one)
    return dict(sorted(found.items()))


def keep(folder: ClimateYears, found: Mapping[int, Moments]) -> Path:
    """Keep what was found beside the data, or in the cache where that is read-only; where."""
    new = {number: _of_year(folder.year(number), moments) for number, moments in found.items()}
    document = Statistics.of({**fresh(folder), **new})
    beside, cached = _places(folder.path)
    try:
        document.write(beside)
        return beside
    except VflopsError:  # a shared folder of data is often read-only
        atomic.make_folder(cached.parent)
        document.write(cached)
        return cached


def moments_of(one: YearStatistics) -> Moments:
    """As numbers to reckon with."""
    return Moments(one.values, np.array(one.mean), np.array(one.squares))


def joined(parts: Sequence[Moments]) -> Moments:
    """All as one, in their order."""
    total = parts[0]
    for part in parts[1:]:
        total = total.joined(part)
    return total


def _of_year(year: Year, moments: Moments) -> YearStatistics:
    return YearStatistics(
        file=year.name,
        bytes=year.bytes,
        time_ns=year.time_ns,
        frames=moments.count // (year.source.height * year.source.width),
        values=moments.count,
        mean=tuple(moments.mean.tolist()),
        squares=tuple(moments.squares.tolist()),
    )


def _same(one: YearStatistics, year: Year) -> bool:
    return (one.file, one.bytes, one.time_ns) == (year.name, year.bytes, year.time_ns)


def _places(folder: Path) -> tuple[Path, Path]:
    name = f"climate-statistics-{digest(str(folder.resolve()))[:16]}.json"
    return folder / STATISTICS, cache_folder() / name
