"""``reproduction.json``: a run compared with its reproduction."""

from __future__ import annotations

from typing import ClassVar, Literal

from vflops.record.files.document import Data, Document
from vflops.results.figures import format_value
from vflops.studies.compare.compare_text import signed
from vflops.units import percent

Kind = Literal["quality", "speed", "score", "time", "ceiling"]
Verdict = Literal["equal", "within", "outside", "cannot tell"]
COLUMNS = ("", "recorded", "here", "difference", "")


class Difference(Data):
    """A fact of the system that differs between the recorded run and this machine."""

    layer: str
    name: str
    recorded: str | None
    here: str | None


class Figure(Data):
    """One figure of both runs; each value is the mean of the run's repeats."""

    name: str
    """The workload and the figure."""
    kind: Kind
    unit: str | None
    recorded: float
    here: float
    difference: float | None
    """The difference relative to the recorded figure; None if that is 0."""
    spread: float | None
    """The largest relative difference that chance can explain; None if it is not known."""
    verdict: Verdict
    reason: str | None = None
    """Why there is no verdict."""


class Reproduction(Document):
    """The comparison of a recorded run with its reproduction."""

    schema_name: ClassVar[str] = "vflops.reproduction"

    recorded: str
    """The run that was reproduced."""
    run: str
    """The run that reproduced it."""
    altered: tuple[str, ...]
    """What was changed in the recorded run since it was concluded."""
    same_machine: bool | None
    """Whether processor, cores and accelerators are of the same kind."""
    same_software: bool | None
    same_data: bool | None
    """Whether the fingerprints of the data are equal; None if nothing was trained."""
    differences: tuple[Difference, ...]
    """Differences in software."""
    same_bits: bool | None
    """Whether all jobs gave the same weights and qualities; None if that is not known."""
    bits_reason: str | None
    figures: tuple[Figure, ...]
    sentences: tuple[str, ...]
    """The result of the comparison in sentences."""
    contradictions: tuple[str, ...]
    """Differences that should not exist; speed is never among them, because machines differ."""


def rows(reproduction: Reproduction) -> list[tuple[str, str, str, str, str]]:
    """Return the figures as rows of a table."""
    return [
        (
            figure.name,
            format_value(figure.unit, figure.recorded),
            format_value(figure.unit, figure.here),
            signed(figure.difference, digits=2),
            verdict_words(figure),
        )
        for figure in reproduction.figures
    ]


def verdict_words(figure: Figure) -> str:
    """Return the verdict on the difference in words."""
    if figure.verdict in ("equal", "cannot tell"):
        why = f": {figure.reason}" if figure.reason else ""
        return f"{figure.verdict}{why}"
    return f"{figure.verdict} the spread of ± {percent(figure.spread)}"
