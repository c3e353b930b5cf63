"""``reproduction.json``: a run beside the one whose settings it repeated."""

from __future__ import annotations

from typing import ClassVar, Literal

from vflops.record.files.document import Data, Document
from vflops.results.score.figure_text import number
from vflops.units import percent, quantity, seconds

Kind = Literal["quality", "speed", "score", "time", "ceiling"]
Verdict = Literal["equal", "within", "outside", "cannot tell"]
COLUMNS = ("", "recorded", "here", "difference", "")


class Difference(Data):
    """A fact of the system that is another one here."""

    layer: str
    name: str
    recorded: str | None
    here: str | None


class Figure(Data):
    """One figure of both runs, each the mean of its trainings."""

    name: str
    """Of what: the workload and the figure."""
    kind: Kind
    unit: str | None
    recorded: float
    here: float
    difference: float | None
    """Of the recorded figure, a share; None where that is 0."""
    spread: float | None
    """The share up to which a difference is chance; None: it is not known."""
    verdict: Verdict
    reason: str | None = None
    """Why it cannot be told."""


class Reproduction(Document):
    """What became of the recorded settings here."""

    schema_name: ClassVar[str] = "vflops.reproduction"

    recorded: str
    """The run that was reproduced."""
    run: str
    """The run that reproduced it."""
    altered: tuple[str, ...]
    """What of the recorded run was not as it was concluded."""
    same_machine: bool | None
    """Whether processor, cores and accelerators are of the same kind."""
    same_software: bool | None
    same_data: bool | None
    """By fingerprints; None: nothing was trained."""
    differences: tuple[Difference, ...]
    """Of the software."""
    same_bits: bool | None
    """Whether all trainings came to the same weights and qualities; None: that cannot be told."""
    bits_reason: str | None
    figures: tuple[Figure, ...]
    sentences: tuple[str, ...]
    """All of it in words."""
    contradictions: tuple[str, ...]
    """What should have come out the same and did not; speed is none: machines differ."""


def rows(found: Reproduction) -> list[tuple[str, str, str, str, str]]:
    """The figures as a table has them."""
    return [
        (
            each.name,
            _shown(each, each.recorded),
            _shown(each, each.here),
            _signed(each.difference),
            verdict_words(each),
        )
        for each in found.figures
    ]


def verdict_words(figure: Figure) -> str:
    """Whether a difference is one, in words."""
    if figure.verdict in ("equal", "cannot tell"):
        why = f": {figure.reason}" if figure.reason else ""
        return f"{figure.verdict}{why}"
    return f"{figure.verdict} the spread of ± {percent(figure.spread)}"


def _shown(figure: Figure, value: float) -> str:
    if figure.kind == "time":
        return seconds(value)
    return quantity(value, figure.unit) if figure.unit else number(value)


def _signed(share: float | None) -> str:
    return "—" if share is None else f"{'+' if share > 0 else ''}{percent(share, digits=2)}"
