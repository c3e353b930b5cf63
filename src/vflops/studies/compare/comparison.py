"""The data of a comparison, which ``vflops compare --json`` prints and the page shows."""

from __future__ import annotations

from typing import ClassVar, Literal

from vflops.record.files.document import Data, Document
from vflops.results.figures import Better, Kind

Verdict = Literal["better", "worse", "not significant", "equal", "cannot tell", "absent"]


class SideRecord(Data):
    """One side: a run, or several repeats of it."""

    name: str
    """``A`` is the side that the others are compared with."""
    runs: tuple[str, ...]
    workload: str
    created_utc: str
    """When its first run was created."""
    machine: str
    failed: dict[str, tuple[str, ...]]
    """The rules that each run breaks."""


class ComparedFigure(Data):
    """One figure of a side and of A; both are means of their repeats."""

    side: str
    workload: str
    name: str
    unit: str | None
    better: Better
    kind: Kind
    base: float | None
    """The figure of A; None if A does not have it."""
    value: float | None
    """The figure of the side; None if the side does not have it."""
    repeats: tuple[int, int]
    """Numbers of repeats of A and of the side."""
    difference: float | None
    """The difference from A, relative to A's figure; None if the figure depends on the goal, and
    the goals or tasks of the sides differ."""
    low: float | None
    high: float | None
    """The 95 % confidence interval of the difference, relative to A's figure; uncorrected."""
    p: float | None
    """The p-value of Welch's test: the probability of such a difference by chance."""
    verdict: Verdict
    """``better`` and ``worse`` are significant after Holm's correction within the kind."""
    reason: str | None
    """Why there is no verdict, or which side lacks the figure."""


class Differing(Data):
    """One fact, setting or version that differs between sides."""

    layer: str
    """The layer of the system, ``settings`` or ``versions``."""
    name: str
    values: tuple[str | None, ...]
    """One value per side; None for a side without the fact, setting or version."""


class Comparison(Document):
    """Sides compared with the first of them."""

    schema_name: ClassVar[str] = "vflops.comparison"

    sides: tuple[SideRecord, ...]
    level: float
    """The probability that any difference of a kind is called significant by mistake."""
    figures: tuple[ComparedFigure, ...]
    system: tuple[Differing, ...]
    equal_layers: tuple[str, ...]
    """The layers of the system in which nothing differs."""
    settings: tuple[Differing, ...]
    versions: tuple[Differing, ...]
    warnings: tuple[str, ...]
    """Why sides, or some of their figures, are not comparable."""
    notes: tuple[str, ...]
    """How the intervals and verdicts are computed."""
