"""Mean and standard deviation of each channel, stored next to the data to avoid reading it again.

``statistics.json`` has them by year, so that another split can reuse them. A year is read again if
the name, size or time of its file has changed, or if the statistics were edited.
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
from vflops.data.packed_index import digest
from vflops.data.process_pool import OnProgress, no_progress
from vflops.errors import Hint, UsageError, VflopsError
from vflops.record.files.cache import cache_entry, trusted_cache
from vflops.record.files.document import Data, Document

STATISTICS = "statistics.json"


class YearStatistics(Data):
    """The moments of one file, and its name, size and time when it was read."""

    file: str
    bytes: int
    time_ns: int
    frames: int = Field(ge=1)
    """Number of usable frames."""
    values: int = Field(ge=1)
    """Number of values per channel."""
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
    def with_checksum(cls, years: Mapping[int, YearStatistics]) -> Statistics:
        """Return statistics with their checksum."""
        return cls(years=dict(years), checksum=_checksum(years))


def _checksum(years: Mapping[int, YearStatistics]) -> str:
    return digest({str(year): moments.model_dump(mode="json") for year, moments in years.items()})


@dataclass(frozen=True)
class Summary:
    """Mean and standard deviation of some years, by channel."""

    mean: np.ndarray[tuple[int], np.dtype[np.float64]]
    std: np.ndarray[tuple[int], np.dtype[np.float64]]
    path: Path
    """The file in which the statistics are stored."""


def statistics(
    folder: ClimateYears,
    years: Sequence[int],
    *,
    workers: int | None = None,
    on_progress: OnProgress = no_progress,
) -> Summary:
    """Return mean and standard deviation of ``years``; read only years without statistics."""
    known = {
        number: year
        for number, year in valid_statistics(folder).items()
        if year.frames == folder.year(number).frames
    }
    missing = [folder.year(number) for number in years if number not in known]
    path = _candidate_paths(folder.path)[0]
    if missing:
        scanned = scan(missing, workers=workers, on_progress=on_progress)
        for year in missing:
            for frame, reason in scanned[year.year].bad.items():
                raise UsageError(
                    f"cannot use {year.path}: frame {frame}: {reason}",
                    hint=Hint(
                        "get the file again; to list all faults", f"vflops data check {folder.path}"
                    ),
                )
        moments = {year.year: scanned[year.year].usable_moments() for year in missing}
        new = {number: merged for number, merged in moments.items() if merged is not None}
        path = store(folder, new)
        known |= {
            number: _year_statistics(folder.year(number), merged) for number, merged in new.items()
        }
    summary = merge([moments_of(known[number]) for number in years])
    return Summary(summary.mean, summary.std, path)


def valid_statistics(folder: ClimateYears) -> dict[int, YearStatistics]:
    """Return the stored statistics that are still valid, from the folder and the cache."""
    valid: dict[int, YearStatistics] = {}
    for path in _candidate_paths(folder.path):
        try:
            stored = Statistics.read(path)
        except VflopsError:
            continue  # missing or damaged
        if stored.checksum == _checksum(stored.years):
            for year in folder.years:
                statistics_of_year = stored.years.get(year.year)
                if statistics_of_year is not None and _same_file(statistics_of_year, year):
                    valid.setdefault(year.year, statistics_of_year)
    return dict(sorted(valid.items()))


def store(folder: ClimateYears, years: Mapping[int, Moments]) -> Path:
    """Write statistics next to the data, or to the cache if that fails; return the path."""
    new = {
        number: _year_statistics(folder.year(number), moments) for number, moments in years.items()
    }
    document = Statistics.with_checksum({**valid_statistics(folder), **new})
    beside, cached = _candidate_paths(folder.path)
    try:
        document.write(beside)
        return beside
    except VflopsError:  # a shared folder of data is often read-only
        document.write(cache_entry(cached.name))
        return cached


def moments_of(year: YearStatistics) -> Moments:
    """Return the statistics of a year as arrays."""
    return Moments(year.values, np.array(year.mean), np.array(year.squares))


def merge(parts: Sequence[Moments]) -> Moments:
    """Merge moments in the given order."""
    total = parts[0]
    for part in parts[1:]:
        total = total.merged(part)
    return total


def _year_statistics(year: Year, moments: Moments) -> YearStatistics:
    return YearStatistics(
        file=year.name,
        bytes=year.bytes,
        time_ns=year.time_ns,
        frames=moments.count // (year.source.height * year.source.width),
        values=moments.count,
        mean=tuple(moments.mean.tolist()),
        squares=tuple(moments.squares.tolist()),
    )


def _same_file(stored: YearStatistics, year: Year) -> bool:
    return (stored.file, stored.bytes, stored.time_ns) == (year.name, year.bytes, year.time_ns)


def _candidate_paths(folder: Path) -> tuple[Path, Path]:
    name = f"climate-statistics-{digest(str(folder.resolve()))[:16]}.json"
    return folder / STATISTICS, trusted_cache() / name
