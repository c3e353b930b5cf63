"""One measured ceiling: a value with its samples and error, or the reason why it is missing."""

from __future__ import annotations

import math
import statistics
from typing import Literal, Self

from pydantic import Field, model_validator

from vflops.record.files.document import Data
from vflops.record.formats.telemetry import ProgramShare

Unit = Literal["FLOPS", "B/s", "IO/s"]


class Trial(Data):
    """One setting that a search tried, and its speed."""

    setting: dict[str, int | str]
    value: float
    """Median of its samples, in the measurement's unit."""


class Measurement(Data):
    """The result of one benchmark for one case in one precision."""

    benchmark: str
    """``gemm``, ``convolution``, ``memory``, ``storage``, ``all-reduce`` or ``transfer``."""
    case: str
    """The case of the benchmark: ``forward``, ``copy``, ``sequential-read``, ``gloo-2-ranks`` …"""
    precision: str | None
    """Precision of the operands; None for a benchmark that measures bytes."""
    device: str
    unit: Unit
    value: float | None
    """Median of ``samples``, taken with the best setting; None if it was not measured."""
    spread: float | None = None
    """Interquartile range of the samples divided by their median."""
    samples: tuple[float, ...] = ()
    setting: dict[str, int | str] = Field(default={})
    """The setting with which ``value`` was reached: sizes, layout, threads."""
    threads: int | None = None
    """The largest number of CPU threads that the search could use; None on an accelerator."""
    tried: tuple[Trial, ...] = ()
    """All settings that the search tried, including the best one."""
    error: float | None = None
    """Relative error compared with a reference of higher precision; None if nothing was
    computed."""
    tolerance: float | None = None
    caveat: str | None = None
    """A warning about the value, such as a possible effect of the page cache."""
    reason: str | None = None
    """Why there is no value."""
    ran_out_of_time: bool = False
    """Whether there is none because the time was used up, so that a resumed run measures it."""
    node: str | None = None
    """The compute node that was measured, or the nodes that communicated; None on the machine that
    the run was started on."""
    kind: str | None = None
    """The kind of that node, if a scheduler chose it."""

    @model_validator(mode="after")
    def _measured_or_absent(self) -> Self:
        if (self.value is None) == (self.reason is None):
            raise ValueError("a measurement has either a value or the reason why it has none")
        median = statistics.median(self.samples) if self.samples else self.value
        if self.value is not None and not math.isclose(self.value, median or 0.0, rel_tol=1e-9):
            raise ValueError("the value is not the median of its samples")
        return self

    @property
    def key(self) -> tuple[str, str, str | None]:
        """The key that identifies the measurement within a run."""
        return (self.benchmark, self.case, self.precision)


class Loaded(Data):
    """The CPU load by other processes while ceilings were measured."""

    others_share: float = Field(ge=0, le=1)
    stolen_share: float | None = Field(default=None, ge=0, le=1)
    """The share that the host of a virtual machine withheld; None in older runs, whose
    ``others_share`` includes it."""
    programs: tuple[ProgramShare, ...] = ()
    """The busiest programs outside of the run, busiest first."""
    node: str | None = None
    """The compute node that was measured; None on the machine that the run was started on."""
