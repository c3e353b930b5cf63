"""Writes a reference from good runs: their means as promises, with a stated tolerance."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from pathlib import Path

from vflops import __version__
from vflops.errors import UsageError
from vflops.metrics.acceptance import repeats_needed
from vflops.metrics.statistics import mean
from vflops.record.files import atomic
from vflops.results.check.background_load import unjudged_load
from vflops.results.check.checking import check
from vflops.results.figures import format_value
from vflops.studies.accept.judging import repeats_of
from vflops.studies.accept.measured_figures import MeasuredFigure
from vflops.studies.accept.promise_units import readable_unit
from vflops.studies.accept.reference import Judgement, PromisedFigure, Reference
from vflops.studies.accept.runs_under_test import RunUnderTest, used_nodes
from vflops.studies.accept.task_settings import task_of

Tolerances = Mapping[str, float]
"""Tolerances by a pattern of names; the last pattern that matches a name counts."""

_WIDTH = 100
_DIGITS = 4
"""Significant digits of a promised value."""
_HEADER = """\
# A reference for `vflops accept --against`: the task that is run, and the promised figures.
# Every number may be changed, and figures may be removed, before both sides agree on the file.
"""
_JUDGEMENT = """\
# A figure is accepted if its mean is on the right side of the limit with this confidence. After
# `repeats` runs, the number of further runs is computed from their spread, up to `max_repeats`.
"""
_FIGURES = """\
# at_least or at_most is the promised value; tolerance is the share by which a mean may be worse.
# node_spread limits (best - worst) / mean between nodes; remove it to leave it open.
"""


def reference_from(
    runs: Sequence[RunUnderTest],
    *,
    name: str,
    contract: str = "",
    tolerances: Tolerances,
    only: Sequence[str] = ("*",),
) -> Reference:
    """Return a reference with the figures of ``runs``, which are repeats of one task.

    ``only`` are patterns of the names of the figures that are promised.
    """
    first = runs[0].view
    for run in runs:
        _require_valid(run)
    tasks = [task_of(run.view) for run in runs]
    if any(task != tasks[0] for task in tasks):
        raise UsageError(
            "the runs are not repeats of one task: their workloads, settings or data differ",
            hint="see how: vflops compare "
            + " ".join(str(run.view.contents.folder.path) for run in runs),
        )
    nodes = used_nodes(runs)
    figures = tuple(
        _promise(name, entries, _tolerance(name, tolerances), len(nodes))
        for name, entries in _common(runs).items()
        if any(fnmatchcase(name, pattern) for pattern in only)
    )
    if not figures:
        raise UsageError(
            f"{first.id} has no figure that matches {', '.join(only)}",
            hint=f"its figures: {', '.join(_common(runs)) or 'none'}",
        )
    return Reference(
        name=name,
        contract=contract,
        date=datetime.now(UTC).date(),
        machine=first.machine,
        vflops=__version__,
        runs=tuple(run.view.id for run in runs),
        task=tasks[0],
        judgement=Judgement(nodes=len(nodes)),
        figure=figures,
    )


def write_reference(path: Path, reference: Reference, runs: Sequence[RunUnderTest]) -> None:
    """Write a reference as commented TOML; the comments say what ``runs`` measured."""
    atomic.write_text(path, reference_text(reference, runs))


def reference_text(reference: Reference, runs: Sequence[RunUnderTest]) -> str:
    """Return the text of the file."""
    task, judgement = reference.task, reference.judgement
    lines = [
        _HEADER,
        f"name = {_quoted(reference.name)}",
        f"contract = {_quoted(reference.contract)}  # its number, or the text of the promise",
        *([f"date = {reference.date}"] if reference.date else []),
        f"machine = {_quoted(reference.machine)}",
        f"vflops = {_quoted(reference.vflops)}",
        f"runs = {_list(reference.runs)}",
        "",
        "[task]",
        f"workload = {_quoted(task.workload)}",
        f"profile = {_quoted(task.profile)}",
        f"settings = {_list(task.settings)}",
        f"fill_nodes = {str(task.fill_nodes).lower()}"
        "  # true: an ensemble with one model per accelerator of every node",
        *_table("task.data", task.data),
        *_table("task.definition", task.definition),
        "",
        _JUDGEMENT + "[judgement]",
        f"confidence = {judgement.confidence}",
        f"repeats = {judgement.repeats}",
        f"max_repeats = {judgement.max_repeats}",
        f"nodes = {judgement.nodes}",
        "",
        _FIGURES.rstrip(),
    ]
    common = _common(runs)
    for figure in reference.figure:
        lines += ["", *_figure_lines(reference, figure, common[figure.name])]
    missing = _not_promised(runs)
    if missing:
        lines += ["", "# Not promised, because the runs have no value:"]
    for reason, names in missing.items():
        lines += textwrap.wrap(
            f"- {', '.join(names)}: {reason}",
            _WIDTH,
            initial_indent="# ",
            subsequent_indent="#   ",
            break_on_hyphens=False,
        )
    return "\n".join(lines) + "\n"


def too_many_repeats(reference: Reference, runs: Sequence[RunUnderTest]) -> dict[str, int | None]:
    """Return the figures that need more than ``max_repeats``, with how many, None for > 10,000."""
    common = _common(runs)
    needed = {
        figure.name: _repeats_needed(reference, figure, common[figure.name])
        for figure in reference.figure
        if _has_spread(common[figure.name])
    }
    limit = reference.judgement.max_repeats
    return {name: n for name, n in needed.items() if n is None or n > limit}


def _require_valid(run: RunUnderTest) -> None:
    failures = check(run.view.contents).failures
    if failures:
        raise UsageError(
            f"{run.view.id} is not valid: rule {failures[0].rule} is not met ({failures[0].text})",
            hint="a reference needs valid runs: repeat it",
        )
    disturbed = unjudged_load(run.view.contents)
    if disturbed:
        raise UsageError(
            f"{run.view.id} was disturbed: {disturbed}",
            hint="a reference needs a quiet machine: end other programs and repeat it",
        )


def _common(runs: Sequence[RunUnderTest]) -> dict[str, list[MeasuredFigure]]:
    """Return the figures that all runs have, in the order of the first run."""
    names = [name for name in runs[0].figures if not _missing_in(runs, name)]
    return {name: [run.figures[name] for run in runs] for name in names}


def _missing_in(runs: Sequence[RunUnderTest], name: str) -> str | None:
    """Return why a figure cannot be promised; None if every run has it."""
    for run in runs:
        entry = run.figures.get(name)
        if entry is None:
            return f"{run.view.id} does not have it"
        if entry.reasons or not entry.by_place:
            return "; ".join(dict.fromkeys(entry.reasons)) or "not measured"
    if _mean([run.figures[name] for run in runs]) <= 0:
        return "its mean is not above 0"
    return None


def _not_promised(runs: Sequence[RunUnderTest]) -> dict[str, list[str]]:
    """Return the figures that cannot be promised, by the reason."""
    missing: dict[str, list[str]] = {}
    for name in dict.fromkeys(name for run in runs for name in run.figures):
        if reason := _missing_in(runs, name):
            missing.setdefault(reason, []).append(name)
    return missing


def _promise(
    name: str, entries: Sequence[MeasuredFigure], tolerance: float, nodes: int
) -> PromisedFigure:
    entry, centre = entries[0], _mean(entries)
    unit, scale = readable_unit(entry.unit, centre)
    value = float(f"{centre / scale:.{_DIGITS}g}")
    higher = entry.better == "higher"
    return PromisedFigure(
        name=name,
        at_least=value if higher else None,
        at_most=None if higher else value,
        unit=unit,
        tolerance=tolerance,
        node_spread=tolerance if nodes > 1 and len(_places(entries)) > 1 else None,
    )


def _tolerance(name: str, tolerances: Tolerances) -> float:
    return [value for pattern, value in tolerances.items() if fnmatchcase(name, pattern)][-1]


def _places(entries: Sequence[MeasuredFigure]) -> list[str]:
    return list(dict.fromkeys(place for entry in entries for place in entry.by_place))


def _mean(entries: Sequence[MeasuredFigure]) -> float:
    """Return the mean over the places of the means of their values."""
    by_place = [
        [sample.value for entry in entries for sample in entry.by_place.get(place, ())]
        for place in _places(entries)
    ]
    return mean([mean(values) for values in by_place])


def _figure_lines(
    reference: Reference, figure: PromisedFigure, entries: Sequence[MeasuredFigure]
) -> Iterator[str]:
    yield "[[figure]]"
    yield f"name = {_quoted(figure.name)}"
    key, value = (
        ("at_least", figure.at_least) if figure.better == "higher" else ("at_most", figure.at_most)
    )
    yield f"# {_remark(reference, figure, entries)}"
    yield f"{key} = {value!r}"
    if figure.unit:
        yield f"unit = {_quoted(figure.unit)}"
    yield f"tolerance = {figure.tolerance!r}"
    if figure.node_spread is not None:
        yield f"node_spread = {figure.node_spread!r}"


def _remark(reference: Reference, figure: PromisedFigure, entries: Sequence[MeasuredFigure]) -> str:
    """Return what was measured, and how many repeats a machine of this kind would need."""
    places = _places(entries)
    repeats = repeats_of(entries, places[0])
    text = (
        f"measured {format_value(figure.base_unit or None, _mean(entries))}, {len(repeats.values)} "
    )
    text += repeats.basis if len(repeats.values) > 1 else repeats.basis.removesuffix("s")
    if len(places) > 1:
        text += f" on each of {len(places)} places"
    if _has_spread(entries):
        needed = _repeats_needed(reference, figure, entries)
        text += f"; such a machine needs about {needed or 'more than 10,000'} repeats"
    return text


def _has_spread(entries: Sequence[MeasuredFigure]) -> bool:
    """Whether the runs show how much runs differ, at every place."""
    every = [repeats_of(entries, place) for place in _places(entries)]
    return all(item.runs > 1 and len(item.values) > 1 for item in every)


def _repeats_needed(
    reference: Reference, figure: PromisedFigure, entries: Sequence[MeasuredFigure]
) -> int | None:
    """Return the repeats that decide the figure at every place; None for more than 10,000."""
    every = [
        repeats_needed(
            repeats_of(entries, place).values,
            threshold=figure.threshold,
            confidence=reference.confidence_of(figure),
        )
        for place in _places(entries)
    ]
    known = [number for number in every if number is not None]
    return max(known) if len(known) == len(every) else None


def _quoted(text: str) -> str:
    """Return ``text`` as a basic string of TOML, whose escapes are those of JSON."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _list(items: Sequence[str]) -> str:
    if not items:
        return "[]"
    return "[\n" + "".join(f"  {_quoted(item)},\n" for item in items) + "]"


def _table(name: str, values: dict[str, str]) -> list[str]:
    if not values:
        return []
    rows = [f"{_quoted(key)} = {_quoted(value)}" for key, value in values.items()]
    return ["", f"[{name}]", *rows]
