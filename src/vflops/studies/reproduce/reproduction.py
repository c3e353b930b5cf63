"""``reproduction.json``: a run compared with the run whose settings it repeated."""

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
    """A fact of the system that is different here."""

    layer: str
    name: str
    recorded: str | None
    here: str | None


class Figure(Data):
    """One figure of both runs, each the mean of its trainings."""

    name: str
    """The workload and the figure."""
    kind: Kind
    unit: str | None
    recorded: float
    here: float
    difference: float | None
    """A share of the recorded figure; None where that is 0."""
    spread: float | None
    """The share up to which a difference may be chance; None if it is not known."""
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
    """Whether all trainings gave the same weights and qualities; None if that is not known."""
    bits_reason: str | None
    figures: tuple[Figure, ...]
    sentences: tuple[str, ...]
    """The comparison in words."""
    contradictions: tuple[str, ...]
    """What should be equal and is not; speed is never listed, because machines differ."""


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
