"""Telemetry: named series of readings over time, and the sensors that are absent."""

from __future__ import annotations

import math
import statistics
from array import array
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Literal

from pydantic import Field, PositiveFloat, model_validator

from vflops.record.files.document import Data, Document
from vflops.record.formats.bounded_numbers import MAX_PROCESSES

Kind = Literal["gauge", "counter"]
Part = Literal["accelerator", "processor", "node", "run", "network-within", "network-between"]


class Series(Data):
    """One quantity that is sampled."""

    id: str = Field(pattern=r"^[^\s.]+(\.[^\s.]+)*$")
    """The device and the quantity, such as ``gpu0.power``; never a host name."""
    title: str
    unit: str
    source: str
    """Where the series is read: a library function, a kernel file or an imported log."""
    kind: Kind
    part: Part
    """The part of the machine that the series belongs to."""
    wraps_at: PositiveFloat | None = None
    """The value at which a counter wraps around to 0; None if it does not wrap."""
    device: str | None = None
    """Identifies the device on the node: ids number the devices of one job, so that each job on a
    shared node has a ``gpu0``. None if the id is unique on the node."""


class Absent(Data):
    """A sensor that is absent, and the reason."""

    what: str
    reason: str


class ProgramShare(Data):
    """A program outside of the run, and the share of the CPUs that it used."""

    name: str
    """The name of the program, without path and arguments."""
    share: float = Field(ge=0, le=1)


class Header(Document):
    """The first line of a telemetry file."""

    schema_name: ClassVar[str] = "vflops.telemetry"

    node: int = Field(default=0, ge=0, lt=MAX_PROCESSES)
    """Index of the node in the attempt; its name is not recorded, since results are published."""
    clock: Literal["monotonic", "utc"] = "monotonic"
    """The clock of ``time_s``: ``time.monotonic()``, as for events, or Unix time."""
    interval_s: PositiveFloat
    series: tuple[Series, ...]
    absent: tuple[Absent, ...] = ()

    @model_validator(mode="after")
    def _ids_are_unique(self) -> Header:
        ids = [series.id for series in self.series]
        duplicates = sorted(id for id, count in Counter(ids).items() if count > 1)
        if duplicates:
            raise ValueError(f"series named twice: {', '.join(duplicates)}")
        return self


@dataclass(frozen=True)
class Telemetry:
    """The contents of a telemetry file: its header, its samples, and errors in other lines.

    Samples are stored in arrays, since a one-day run has 86,400 of them.
    """

    header: Header
    times_s: Sequence[float]
    """Times by the clock in the header; strictly increasing."""
    utc_s: Sequence[float]
    """The same times as Unix time."""
    table: array[float]
    """All rows in order, each with one value per series; NaN if a reading failed."""
    faults: tuple[str, ...] = ()
    """Error messages for invalid lines, each with file and line."""
    torn: str | None = None
    """File and number of a last line that was cut off while it was being written."""
    programs: tuple[ProgramShare, ...] = ()
    """The busiest programs outside of the run while all of this was sampled, busiest first."""

    def __len__(self) -> int:
        return len(self.times_s)

    def column(self, id: str) -> list[float | None]:
        """Return the readings of one series; None for those that failed.

        Raise ``KeyError`` for an unknown id.
        """
        index = self._index[id]
        return [None if math.isnan(value) else value for value in self.table[index :: self._width]]

    def series(self, part: Part | None = None) -> list[Series]:
        """Return the series of one part of the machine, or of all parts."""
        return [series for series in self.header.series if part in (None, series.part)]

    @cached_property
    def energies(self) -> dict[object, Any]:
        """Energies by series and span; a place to keep them, since several rules need them."""
        return {}

    @cached_property
    def utc_offset_s(self) -> float:
        """Unix time minus ``time_s``, or 0 without samples.

        It is the median over all samples, in case the clock was adjusted during the run.
        """
        offsets = [utc - time for utc, time in zip(self.utc_s, self.times_s, strict=True)]
        return statistics.median(offsets) if offsets else 0.0

    def shifted(self, by_s: float) -> Telemetry:
        """Return the same samples with ``by_s`` added to their times."""
        return replace(self, times_s=array("d", (time_s + by_s for time_s in self.times_s)))

    def on_clock_of(self, other: Telemetry) -> Telemetry:
        """Return the same samples with times by the clock of ``other``, converted through UTC."""
        return self.shifted(self.utc_offset_s - other.utc_offset_s)

    @cached_property
    def _index(self) -> dict[str, int]:
        return {series.id: index for index, series in enumerate(self.header.series)}

    @property
    def _width(self) -> int:
        return len(self.header.series)
