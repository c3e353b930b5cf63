"""The outcome of an acceptance test as text: tables, sentences, and lines for other programs."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from vflops.results.figures import format_value
from vflops.studies.accept.acceptance import Acceptance, FigureVerdict, JudgedFigure
from vflops.studies.accept.bounds_text import bounds_text
from vflops.units import percent

EXIT_CODES = {"accepted": 0, "rejected": 1, "undecided": 4, "incomplete": 4}
"""The exit code of each verdict; 2 and 3 are those of wrong usage and of a failed run."""
_ORDER: tuple[FigureVerdict, ...] = ("rejected", "missing", "undecided", "accepted")
_MAX_NODES = 6
"""The largest number of nodes that are named in one line."""
COLUMNS = ("figure", "promised", "limit", "measured", "bounds", "n", "verdict")
"""The columns of `row`."""


def in_order(figures: Sequence[JudgedFigure]) -> list[JudgedFigure]:
    """Return the figures with those that were not accepted first."""
    return sorted(figures, key=lambda figure: _ORDER.index(figure.verdict))


def row(figure: JudgedFigure) -> tuple[str, ...]:
    """Return the cells of a figure, see `COLUMNS`."""
    sign = "≥" if figure.better == "higher" else "≤"
    return (
        figure.title,
        _value(figure, figure.promised),
        f"{sign} {_value(figure, figure.threshold)}",
        _value(figure, figure.mean),
        bounds(figure),
        str(len(figure.values) or ""),
        figure.verdict,
    )


def bounds(figure: JudgedFigure) -> str:
    """Return the confidence bounds of the mean."""
    if figure.low is None or figure.high is None:
        return ""
    return bounds_text(figure.unit, figure.low, figure.high)


def _value(figure: JudgedFigure, value: float | None) -> str:
    return "—" if value is None else format_value(figure.unit or None, value)


def basis(figure: JudgedFigure) -> str:
    """Return what the repeats of a figure are: ``3 runs``."""
    if figure.basis is None or figure.basis == "nodes":
        return ""
    number = len(figure.values)
    return f"{number} {figure.basis if number > 1 else figure.basis.removesuffix('s')}"


def remarks(acceptance: Acceptance) -> Iterator[str]:
    """Yield why figures were not accepted, and what keeps the runs from being evidence."""
    yield from (f"{fault}" for fault in acceptance.all_faults)
    short: dict[str, list[JudgedFigure]] = {}
    for figure in filter(acceptance.lacks_runs, acceptance.with_verdict("undecided")):
        short.setdefault(f"{figure.reason}; {more_repeats(acceptance, figure)}", []).append(figure)
    for reason, figures in short.items():
        named = figures[0].title if len(figures) == 1 else f"{len(figures)} figures"
        yield f"{named}: undecided: {reason}"
    for figure in in_order(acceptance.figures):
        if figure.verdict == "rejected":
            yield f"{figure.title}: {_rejection(figure)}"
        elif figure.verdict == "missing":
            yield f"{figure.title}: missing: {figure.reason}"
        elif figure.verdict == "undecided" and not acceptance.lacks_runs(figure):
            yield (
                f"{figure.title}: undecided: {figure.reason}; {more_repeats(acceptance, figure)}"
            )


def _rejection(figure: JudgedFigure) -> str:
    bound = figure.high if figure.better == "higher" else figure.low
    side = "below" if figure.better == "higher" else "above"
    suffix = f" ({figure.reason})" if figure.reason else ""
    return (
        f"rejected: {_value(figure, figure.mean)} measured, {_value(figure, figure.threshold)} is"
        f" the limit; with {percent(figure.confidence, digits=0)} confidence it is {side}"
        f" {_value(figure, bound)}{suffix}"
    )


def more_repeats(acceptance: Acceptance, figure: JudgedFigure) -> str:
    """Return how many more repeats a figure needs."""
    if acceptance.lacks_runs(figure):
        return f"{_more_runs(acceptance, figure.more or 0)} needed"
    if figure.more is None:
        return "no reasonable number of repeats would decide"
    return f"about {count_text(figure.more, 'more repeat')} would decide"


def next_repeats(acceptance: Acceptance) -> str:
    """Return why more repeats are run, and how many."""
    undecided = acceptance.with_verdict("undecided")
    slowest = max(undecided, key=lambda figure: figure.more or 0)
    return (
        f"{count_text(len(undecided), 'figure')} undecided after {len(acceptance.runs)} repeats:"
        f" {acceptance.more_repeats} more are needed for {slowest.title} ({slowest.reason})"
    )


def sentence(acceptance: Acceptance) -> str:
    """Return the verdict in one sentence."""
    figures, runs = acceptance.figures, len(acceptance.runs)
    total, measured = count_text(len(figures), "figure"), count_text(runs, "run")
    if acceptance.verdict == "accepted":
        return f"Accepted: all {total} meet the reference, by {measured}."
    if acceptance.verdict == "rejected":
        rejected = acceptance.with_verdict("rejected")
        names = ", ".join(dict.fromkeys(figure.title for figure in rejected[:3]))
        rest = f" and {len(rejected) - 3} more" if len(rejected) > 3 else ""
        return f"Rejected: {len(rejected)} of {total} miss the reference: {names}{rest}."
    if acceptance.verdict == "incomplete":
        return f"Not accepted: the evidence is incomplete: {_incomplete(acceptance)}."
    undecided = len(acceptance.with_verdict("undecided"))
    return f"Not accepted yet: {undecided} of {total} undecided; {_outlook(acceptance)}."


def _incomplete(acceptance: Acceptance) -> str:
    if not acceptance.runs:
        return "there is no run"
    faults = acceptance.all_faults
    if faults:
        more = f", and {len(faults) - 1} more" if len(faults) > 1 else ""
        return f"{faults[0]}{more}"
    missing = acceptance.with_verdict("missing")
    more = f", and {len(missing) - 1} more" if len(missing) > 1 else ""
    return f"{missing[0].title} is missing ({missing[0].reason}){more}"


def _outlook(acceptance: Acceptance) -> str:
    needed, limit = acceptance.needed_repeats, acceptance.reference.judgement.max_repeats
    if needed is None:
        return "no reasonable number of repeats would decide: a mean is too close to its limit"
    short = any(map(acceptance.lacks_runs, acceptance.with_verdict("undecided")))
    text = f"{'at least' if short else 'about'} {_needed_text(acceptance, needed)} needed"
    return text if needed <= limit else f"{text}, more than max_repeats = {limit}"


def _needed_text(acceptance: Acceptance, needed: int) -> str:
    """Return the number of repeats; a run of some of the nodes is no repeat on the others."""
    if acceptance.repeats == len(acceptance.runs):
        return f"{needed} repeats are"
    return _more_runs(acceptance, acceptance.more_repeats or 0)


def _more_runs(acceptance: Acceptance, more: int) -> str:
    each = "" if acceptance.repeats == len(acceptance.runs) else " on each node"
    return f"{count_text(more, 'more run')}{each} {'is' if more == 1 else 'are'}"


def count_text(number: int, noun: str) -> str:
    """Return ``1 node`` or ``2 nodes``."""
    return f"{number} {noun}{'s' * (number != 1)}"


def machines(acceptance: Acceptance) -> str:
    """Return the machines of the runs, with their nodes."""
    kinds = dict.fromkeys(run.machine for run in acceptance.runs)
    nodes = sorted({node for run in acceptance.runs for node in run.nodes})
    shown = ", ".join(nodes[:_MAX_NODES]) + (" …" if len(nodes) > _MAX_NODES else "")
    return f"{'; '.join(kinds)} ({count_text(len(nodes), 'node')}: {shown})"


def name_parts(name: str) -> list[str]:
    """Return a name in the parts between which a line may break."""
    return re.findall(r"[^._\-\s]*[._\-\s]?", name)[:-1]


def shortened(text: str, limit: int = 260) -> str:
    """Return ``text``, cut off so that a page of fixed size can show it."""
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def left_out(figures: Sequence[JudgedFigure]) -> str:
    """Return the number of figures that are not shown, by verdict."""
    counts = Counter(figure.verdict for figure in figures)
    return ", ".join(f"{number} {verdict}" for verdict, number in counts.items())


def cut(items: Sequence[str], limit: int) -> list[str]:
    """Return at most ``limit`` items; the last one says how many are missing."""
    if len(items) <= limit:
        return list(items)
    return [*items[: limit - 1], f"… and {len(items) - limit + 1} more in acceptance.json"]


def lines(acceptance: Acceptance) -> Iterator[str]:
    """Yield ``name: value unit`` in base units, for programs that read standard output.

    If a figure has several nodes, each has a line ``name@node``, and the line of the name is the
    worst of them.
    """
    yield f"verdict: {acceptance.verdict}"
    by_name: dict[str, list[JudgedFigure]] = {}
    for figure in acceptance.figures:
        by_name.setdefault(figure.name, []).append(figure)
    for name, figures in by_name.items():
        known = [figure for figure in figures if figure.mean is not None]
        if not known:
            continue
        choose = min if known[0].better == "higher" else max
        yield _line(name, choose(known, key=lambda figure: figure.mean or 0.0))
        if len(known) > 1:
            yield from (_line(f"{name}@{_word(figure.place)}", figure) for figure in known)


def _line(name: str, figure: JudgedFigure) -> str:
    return f"{name}: {figure.mean!r} {figure.unit or '1'}"


def _word(place: str | None) -> str:
    return re.sub(r"\s+", "-", place or "machine")
