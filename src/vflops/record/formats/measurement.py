"""One measured ceiling: a value with its samples and its check, or no value with the reason."""

from __future__ import annotations

import math
import statistics
from typing import Literal, Self

from pydantic import Field, model_validator

from vflops.record.files.document import Data

Unit = Literal["FLOPS", "B/s", "IO/s"]


class Trial(Data):
    """One setting that a search tried, and the speed it reached."""

    setting: dict[str, int | str]
    value: float
    """Median of its samples, in the measurement's unit."""


class Measurement(Data):
    """What one benchmark found out about one case in one precision."""

    benchmark: str
    """``gemm``, ``convolution``, ``memory``, ``storage``, ``all-reduce`` or ``transfer``."""
    case: str
    """Which part of it: ``forward``, ``copy``, ``sequential-read``, ``gloo-2-ranks`` …"""
    precision: str | None
    """Of the operands; None where bytes are bytes."""
    device: str
    unit: Unit
    value: float | None
    """Median of ``samples`` at the best setting; None when it was not measured."""
    spread: float | None = None
    """Interquartile range of the samples over their median."""
    samples: tuple[float, ...] = ()
    setting: dict[str, int | str] = Field(default={})
    """The setting that reached ``value``: sizes, layout, threads."""
    tried: tuple[Trial, ...] = ()
    """Every setting of the search, the best one among them."""
    error: float | None = None
    """Relative error against a higher-precision reference, where arithmetic was done."""
    tolerance: float | None = None
    caveat: str | None = None
    """What a reader must know of the value, such as a page cache in the way."""
    reason: str | None = None
    """Why there is no value."""

    @model_validator(mode="after")
    def _measured_or_absent(self) -> Self:
        if (self.value is None) == (self.reason is None):
            raise ValueError("a measurement has either a value or the reason why it has none")
        middle = statistics.median(self.samples) if self.samples else self.value
        if self.value is not None and not math.isclose(self.value, middle or 0.0, rel_tol=1e-9):
            raise ValueError("the value is not the median of its samples")
        return self

    @property
    def key(self) -> tuple[str, str, str | None]:
        """What names this measurement within a run."""
        return (self.benchmark, self.case, self.precision)
