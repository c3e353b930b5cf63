"""A comparison as data: what ``vflops compare --json`` prints and the page shows."""

from __future__ import annotations

from typing import ClassVar, Literal

from vflops.record.files.document import Data, Document
from vflops.results.figures import Better, Kind

Verdict = Literal["better", "worse", "not significant", "equal", "cannot tell", "absent"]


class SideRecord(Data):
    """One side: a run, or several that repeat one thing."""

    name: str
    """``A`` is what the others are compared with."""
    runs: tuple[str, ...]
    workload: str
    created_utc: str
    """Of its first run."""
    machine: str
    failed: dict[str, tuple[str, ...]]
    """The rules that a run of it does not meet, by run."""


class ComparedFigure(Data):
    """One figure of a side beside that of A; each is the mean of its repeats."""

    side: str
    workload: str
    name: str
    unit: str | None
    better: Better
    kind: Kind
    base: float | None
    """Of A; None: it has none."""
    value: float | None
    """Of the side."""
    repeats: tuple[int, int]
    """Of A and of the side."""
    difference: float | None
    """A share of A's."""
    low: float | None
    high: float | None
    """The 95 % confidence interval of the difference, of this figure alone; a share of A's."""
    p: float | None
    """The chance of such a difference where there is none, by Welch's test."""
    verdict: Verdict
    """``better`` and ``worse`` are significant, with Holm's correction for all of a kind."""
    reason: str | None
    """Why it cannot be told, or which side has no such figure."""


class Differing(Data):
    """One thing that is not the same on all sides."""

    layer: str
    """Of the system; ``settings`` or ``versions`` for what is none."""
    name: str
    values: tuple[str | None, ...]
    """Of each side; None: it has none."""


class Comparison(Document):
    """Sides compared with the first of them."""

    schema_name: ClassVar[str] = "vflops.comparison"

    sides: tuple[SideRecord, ...]
    level: float
    """The chance that any difference of a kind of figures is called significant by mistake."""
    figures: tuple[ComparedFigure, ...]
    system: tuple[Differing, ...]
    equal_layers: tuple[str, ...]
    """Of the nine layers of the system."""
    settings: tuple[Differing, ...]
    versions: tuple[Differing, ...]
    warnings: tuple[str, ...]
    """Why the sides, or figures of theirs, do not compare."""
    notes: tuple[str, ...]
    """What the intervals rest on."""
