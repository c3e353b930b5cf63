"""Telemetry: named series of readings over time, and the sensors that were absent."""

from __future__ import annotations

import math
import statistics
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, Literal

from pydantic import Field, PositiveFloat, model_validator

from vflops.record.files.document import Data, Document

Kind = Literal["gauge", "counter"]
Part = Literal["accelerator", "processor", "node", "run", "network-within", "network-between"]


class Series(Data):
    """One quantity that is sampled."""

    id: str = Field(pattern=r"^[^\s.]+(\.[^\s.]+)*$")
    """``gpu0.power``: the device, then the quantity; never the name of a host."""
    title: str
    unit: str
    source: str
    """Where it is read: a library function, a file of the kernel, an imported log."""
    kind: Kind
    part: Part
    """The part of the machine that it belongs to."""
    wraps_at: PositiveFloat | None = None
    """The value at which a counter restarts from 0; None if it does not."""
    device: str | None = None
    """Which device of the node it is: ids number the devices of one job, so jobs that share a node
    each have a ``gpu0``. None: the id is unique on the node."""


class Absent(Data):
    """A sensor that is absent."""

    what: str
    reason: str


class Header(Document):
    """The first line of a telemetry file."""

    schema_name: ClassVar[str] = "vflops.telemetry"

    node: int = Field(default=0, ge=0)
    """The node's number in the attempt; its name is not recorded, as results are published."""
    clock: Literal["monotonic", "utc"] = "monotonic"
    """The clock of ``time_s``: ``time.monotonic()``, as for events, or Unix time."""
    interval_s: PositiveFloat
    series: tuple[Series, ...]
    absent: tuple[Absent, ...] = ()

    @model_validator(mode="after")
    def _ids_are_unique(self) -> Header:
        ids = [series.id for series in self.series]
        twice = sorted({id for id in ids if ids.count(id) > 1})
        if twice:
            raise ValueError(f"series named twice: {', '.join(twice)}")
        return self


@dataclass(frozen=True)
class Telemetry:
    """A telemetry file: its header, its samples, and what was wrong with other lines.

    Samples are kept in plain arrays, since a run of a day has 86 400 of them.
    """

    header: Header
    times_s: Sequence[float]
    """By the clock that the header names; strictly increasing."""
    utc_s: Sequence[float]
    """The same moments as Unix time."""
    table: array[float]
    """Row after row, one value per series; NaN where a reading failed."""
    faults: tuple[str, ...] = ()
    """Lines that are not samples, each with file and line."""
    torn: str | None = None
    """A last line that was cut off while it was being written."""

    def __len__(self) -> int:
        return len(self.times_s)

    def column(self, id: str) -> list[float | None]:
        """Return the readings of one series, None where one failed.

        Raise ``KeyError`` for an unknown id.
        """
        index = self._index[id]
        return [None if math.isnan(value) else value for value in self.table[index :: self._width]]

    def series(self, part: Part | None = None) -> list[Series]:
        """Return the series of one part of the machine, or all."""
        return [series for series in self.header.series if part in (None, series.part)]

    @cached_property
    def utc_offset_s(self) -> float:
        """Unix time minus ``time_s``, or 0 without samples.

        The median is robust against a clock that was set in the meantime.
        """
        offsets = [utc - time for utc, time in zip(self.utc_s, self.times_s, strict=True)]
        return statistics.median(offsets) if offsets else 0.0

    def shifted(self, by_s: float) -> Telemetry:
        """Return the same samples with ``by_s`` added to their times."""
        return replace(self, times_s=array("d", (time_s + by_s for time_s in self.times_s)))

    def on_clock_of(self, other: Telemetry) -> Telemetry:
        """Return the same samples with the times of ``other``'s clock, converted through UTC."""
        return self.shifted(self.utc_offset_s - other.utc_offset_s)

    @cached_property
    def _index(self) -> dict[str, int]:
        return {series.id: index for index, series in enumerate(self.header.series)}

    @property
    def _width(self) -> int:
        return len(self.header.series)
