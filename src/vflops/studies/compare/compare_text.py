"""A comparison as people read it: the rows of its tables, for terminal and page alike."""

from __future__ import annotations

from collections.abc import Sequence

from vflops.results.figures import shown
from vflops.studies.compare.comparison import ComparedFigure, Comparison, Differing, SideRecord

TOLD = {"better": "yes, better", "worse": "yes, worse", "not significant": "no"}
SIGNIFICANT = ("better", "worse")


def figure_columns(side: str) -> tuple[str, ...]:
    """The titles over the rows of a side."""
    return "figure", "A", side, "difference", "95 % interval", "significant?"


def figure_row(figure: ComparedFigure) -> tuple[str, ...]:
    """A figure as a table of its workload has it."""
    values = (
        "—" if value is None else shown(figure.unit, value) for value in (figure.base, figure.value)
    )
    return figure.name, *values, signed(figure.difference), interval(figure), verdict(figure)


def verdict(figure: ComparedFigure) -> str:
    """Whether a difference is more than chance, in words; why that is so say ``reasons``."""
    if figure.verdict == "absent":
        return figure.reason or figure.verdict
    return TOLD.get(figure.verdict, figure.verdict)


def reasons(figures: Sequence[ComparedFigure], side: str) -> list[str]:
    """Why figures of a side cannot be told, or are no difference, each said once."""
    found: dict[str, list[str]] = {}
    for each in figures:
        if each.side == side and each.reason and each.verdict != "absent":
            name = f"{each.workload} {each.name}" if each.kind == "ceiling" else each.name
            found.setdefault(f"{verdict(each)}: {each.reason}", []).append(name)
    return [f"{why} ({_named(names)})" for why, names in found.items()]


def _named(names: Sequence[str]) -> str:
    names = list(dict.fromkeys(names))
    return ", ".join(names) if len(names) < 4 else f"{len(names)} figures"


def alone(figures: Sequence[ComparedFigure]) -> str | None:
    """That only one side has a workload; None where both have a figure of it."""
    said = {each.reason for each in figures}
    if len(said) > 1 or any(each.verdict != "absent" for each in figures):
        return None
    return f"{said.pop()} ({len(figures)} figure{'' if len(figures) == 1 else 's'})"


def interval(figure: ComparedFigure) -> str:
    """From where to where the difference may be; empty where that is not known."""
    if figure.low is None or figure.high is None:
        return ""
    return f"{signed(figure.low).removesuffix(' %')} … {signed(figure.high)}"


def signed(share: float | None) -> str:
    """A difference in per cent, with its sign."""
    if share is None:
        return "—"
    text = f"{100 * share:.1f}" if abs(share) < 9.995 else f"{100 * share:.0f}"
    return f"{'+' if not text.startswith('-') and float(text) else ''}{text} %"


def sentence(found: Comparison, side: SideRecord) -> str:
    """What a side came to beside A, in one sentence."""
    own = [each for each in found.figures if each.side == side.name]
    named = [each for each in own if each.verdict in SIGNIFICANT]
    if named:
        words = ", ".join(
            f"{each.name} {signed(each.difference)} ({each.verdict})" for each in named[:4]
        )
        rest = f" and {len(named) - 4} more" if len(named) > 4 else ""
        return f"{side.name} differs from A significantly in {words}{rest}."
    if any(each.p is not None for each in own):
        return f"No figure of {side.name} differs from A significantly."
    if not any(each.difference is not None for each in own):
        return f"{side.name} and A have no figure in common."
    return f"Whether {side.name} differs from A cannot be told: there are too few repeats."


def by_workload(
    figures: Sequence[ComparedFigure], side: str
) -> list[tuple[str, list[ComparedFigure]]]:
    """The figures of one side under what they are of, results before ceilings."""
    own = sorted(
        (each for each in figures if each.side == side), key=lambda each: each.kind == "ceiling"
    )
    names = dict.fromkeys(each.workload for each in own)
    return [(name, [each for each in own if each.workload == name]) for name in names]


def differing_row(each: Differing) -> tuple[str, ...]:
    """Something that differs, with its value on each side."""
    return each.layer, each.name, *("none" if value is None else value for value in each.values)


def runs(side: SideRecord) -> str:
    """The runs of a side."""
    return ", ".join(side.runs)
