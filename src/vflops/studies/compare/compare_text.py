"""The table rows and sentences of a comparison, for the terminal and the HTML page."""

from __future__ import annotations

from collections.abc import Sequence

from vflops.results.figures import format_value
from vflops.studies.compare.comparison import ComparedFigure, Comparison, Differing, SideRecord

_VERDICTS = {"better": "yes, better", "worse": "yes, worse", "not significant": "no"}
SIGNIFICANT = ("better", "worse")
_MAX_NAMED = 4
"""The largest number of figures that a sentence names."""


def figure_columns(side: str) -> tuple[str, ...]:
    """Return the column titles of the figures of ``side``."""
    return "figure", "A", side, "difference", "95 % interval", "significant?"


def figure_row(figure: ComparedFigure) -> tuple[str, ...]:
    """Return the row of one figure."""
    values = (
        "—" if value is None else format_value(figure.unit, value)
        for value in (figure.base, figure.value)
    )
    return figure.name, *values, signed(figure.difference), interval(figure), verdict(figure)


def verdict(figure: ComparedFigure) -> str:
    """Return whether the difference is significant, in words."""
    if figure.verdict == "absent":
        return figure.reason or figure.verdict
    if figure.verdict == "cannot tell" and figure.difference is None:
        return "not comparable"
    return _VERDICTS.get(figure.verdict, figure.verdict)


def reasons(figures: Sequence[ComparedFigure], side: str) -> list[str]:
    """Return the reasons for the verdicts of a side, each once with the figures it concerns."""
    common = [figure for figure in figures if figure.side == side and figure.verdict != "absent"]
    by_reason: dict[str, list[str]] = {}
    for figure in common:
        if figure.reason:
            in_full = figure.kind == "ceiling"
            name = f"{figure.workload} {figure.name}" if in_full else figure.name
            by_reason.setdefault(f"{verdict(figure)}: {figure.reason}", []).append(name)
    return [f"{reason} ({_listed(names, len(common))})" for reason, names in by_reason.items()]


def _listed(names: Sequence[str], total: int) -> str:
    """Return the names if they are few, else how many of all figures of both sides these are."""
    different = list(dict.fromkeys(names))
    if len(different) < _MAX_NAMED:
        return ", ".join(different)
    of_all = f"all {total}" if len(names) == total else f"{len(names)} of {total}"
    return f"{of_all} figures that both sides have"


def alone(figures: Sequence[ComparedFigure]) -> str | None:
    """Return a note that only one side has these figures; None if both sides have one of them."""
    reasons = {figure.reason for figure in figures}
    if len(reasons) > 1 or any(figure.verdict != "absent" for figure in figures):
        return None
    return f"{reasons.pop()} ({len(figures)} figure{'' if len(figures) == 1 else 's'})"


def interval(figure: ComparedFigure) -> str:
    """Return the confidence interval of the difference; empty if there is none."""
    if figure.low is None or figure.high is None:
        return ""
    return f"{signed(figure.low).removesuffix(' %')} … {signed(figure.high)}"


def signed(share: float | None, *, digits: int = 1) -> str:
    """Return a difference, given as a share, as a percentage with its sign."""
    if share is None:
        return "—"
    text = f"{100 * share:.{digits}f}" if abs(share) < 9.995 else f"{100 * share:.0f}"
    return f"{'+' if not text.startswith('-') and float(text) else ''}{text} %"


def sentence(comparison: Comparison, side: SideRecord) -> str:
    """Return the outcome of one side in a sentence."""
    figures = [figure for figure in comparison.figures if figure.side == side.name]
    significant = [figure for figure in figures if figure.verdict in SIGNIFICANT]
    if significant:
        named = ", ".join(
            f"{figure.name} {signed(figure.difference)} ({figure.verdict})"
            for figure in significant[:_MAX_NAMED]
        )
        more = len(significant) - _MAX_NAMED
        rest = f" and {more} more" if more > 0 else ""
        return f"{side.name} differs from A significantly in {named}{rest}."
    if any(figure.p is not None for figure in figures):
        return f"No figure of {side.name} differs from A significantly."
    if not any(figure.difference is not None for figure in figures):
        return f"{side.name} and A have no figure in common."
    return f"There are too few repeats to tell whether {side.name} differs from A."


def most_important(figures: Sequence[ComparedFigure], limit: int) -> list[ComparedFigure]:
    """Return at most ``limit`` figures: significant differences first, then results, then ceilings.

    Ceilings are ordered by the size of their difference; without a limit to apply, nothing moves.
    """
    if len(figures) <= limit:
        return list(figures)

    def rank(figure: ComparedFigure) -> tuple[bool, bool, bool, float]:
        is_ceiling = figure.kind == "ceiling"
        change = -abs(figure.difference or 0.0) if is_ceiling else 0.0
        return figure.verdict not in SIGNIFICANT, figure.verdict == "absent", is_ceiling, change

    return sorted(figures, key=rank)[:limit]


def by_workload(
    figures: Sequence[ComparedFigure], side: str
) -> list[tuple[str, list[ComparedFigure]]]:
    """Return the figures of one side, grouped by workload or benchmark, results before ceilings."""
    of_side = sorted(
        (figure for figure in figures if figure.side == side),
        key=lambda figure: figure.kind == "ceiling",
    )
    names = dict.fromkeys(figure.workload for figure in of_side)
    return [(name, [figure for figure in of_side if figure.workload == name]) for name in names]


def differing_row(row: Differing) -> tuple[str, ...]:
    """Return the row of a fact, setting or version that differs, with its value on each side."""
    return row.layer, row.name, *("none" if value is None else value for value in row.values)


def runs(side: SideRecord) -> str:
    """Return the ids of the runs of a side."""
    return ", ".join(side.runs)
