"""Judges runs against a reference: every promised figure on every node, with its confidence."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from vflops import __version__
from vflops.metrics.acceptance import decide, one_sided_bounds, repeats_needed
from vflops.metrics.statistics import ConfidenceInterval, mean, stdev
from vflops.results.figures import Sample
from vflops.studies.accept.acceptance import (
    Acceptance,
    Basis,
    FigureVerdict,
    JudgedFigure,
    JudgedRun,
    Verdict,
)
from vflops.studies.accept.measured_figures import (
    MACHINE,
    MeasuredFigure,
)
from vflops.studies.accept.reference import PromisedFigure, Reference
from vflops.studies.accept.runs_under_test import (
    MeasuredRun,
    RunUnderTest,
    judge_run,
    some_of,
    used_nodes,
)
from vflops.units import percent

NODE_SPREAD = "node_spread"
"""The last part of the name of a spread between nodes."""


@dataclass(frozen=True)
class Repeats:
    """The values of one figure at one place, what they are, and how many runs they are from."""

    values: tuple[float, ...]
    basis: Basis
    runs: int


def judge(reference: Reference, runs: Sequence[RunUnderTest]) -> Acceptance:
    """Return the verdict on ``runs``, which are repeats, or runs of several nodes."""
    records = tuple(judge_run(reference, run, runs) for run in runs)
    faults = tuple(_faults(reference, runs))
    figures = judge_figures(reference, runs)
    return Acceptance(
        verdict=overall_verdict(records, faults, figures),
        reference=reference,
        vflops=__version__,
        runs=records,
        faults=faults,
        figures=figures,
        notes=tuple(_notes(reference, runs)),
    )


def judge_figures(reference: Reference, runs: Sequence[MeasuredRun]) -> tuple[JudgedFigure, ...]:
    """Return the verdict on every promised figure at every place."""
    return tuple(
        figure
        for promised in reference.figure
        for figure in _judge_figure(reference, promised, runs)
    )


def overall_verdict(
    runs: Sequence[JudgedRun], faults: Sequence[str], figures: Sequence[JudgedFigure]
) -> Verdict:
    """Return the verdict on the machine. A run that is not valid is evidence of nothing."""
    verdicts = {figure.verdict for figure in figures}
    if not runs or any(run.faults for run in runs):
        return "incomplete"
    if "rejected" in verdicts:
        return "rejected"
    if faults or "missing" in verdicts:
        return "incomplete"
    return "undecided" if "undecided" in verdicts else "accepted"


def _faults(reference: Reference, runs: Sequence[RunUnderTest]) -> Iterator[str]:
    """Yield what is wrong with the runs together."""
    used = used_nodes(runs)
    if runs and len(used) < reference.judgement.nodes:
        yield (
            f"{reference.judgement.nodes} nodes are promised, and the runs used {len(used)}: "
            f"{', '.join(sorted(used))}"
        )


def _judge_figure(
    reference: Reference, promised: PromisedFigure, runs: Sequence[MeasuredRun]
) -> Iterator[JudgedFigure]:
    """Yield the verdict on one figure at every place, and on the spread between places."""
    entries = [run.figures.get(promised.name) for run in runs]
    reason = _promised_uncapped(reference, promised) or _missing_reason(promised, runs, entries)
    if reason is not None:
        yield _judged(reference, promised, None, None, reason)
        return
    found = [entry for entry in entries if entry is not None]
    places = list(dict.fromkeys(place for entry in found for place in entry.by_place))
    judged = []
    for place in sorted(places):
        repeats = repeats_of(found, place)
        shown = None if places == [MACHINE] else place
        judged.append(_judged(reference, promised, shown, repeats))
    yield from judged
    if promised.node_spread is not None and (len(judged) > 1 or reference.judgement.nodes > 1):
        fewest = min((repeats_of(found, place).runs for place in places), default=0)
        yield _judge_spread(reference, promised, promised.node_spread, judged, fewest)


def _promised_uncapped(reference: Reference, promised: PromisedFigure) -> str | None:
    """Return why VFLOPS, or VFLOPS per watt, are promised by the formula of the papers.

    Its quality factor may exceed 1, that of a run may not: a machine with exactly the promised
    FLOPS would be rejected. None if the figure is another one, or can be reached.
    """
    subject, _, key = promised.name.rpartition(".")
    if key not in ("vflops", "vflops_per_watt"):
        return None
    figures = {figure.name: figure for figure in reference.figure}
    flops, valid = figures.get(f"{subject}.flops"), figures.get(f"{subject}.vflops")
    if flops is None or valid is None or valid.promised <= flops.promised:
        return None
    return (
        "promised before the quality factor was capped at 1: more VFLOPS than FLOPS are promised"
        f" for {subject}; write the reference again, or promise at most its FLOPS, and VFLOPS per"
        " watt by the same ratio"
    )


def _missing_reason(
    promised: PromisedFigure, runs: Sequence[MeasuredRun], entries: Sequence[MeasuredFigure | None]
) -> str | None:
    """Return why a figure cannot be judged; None if every run has it."""
    if not runs:
        return "there is no run"
    for run, entry in zip(runs, entries, strict=True):
        if entry is None:
            similar = difflib.get_close_matches(promised.name, run.figures, n=2, cutoff=0.5)
            hint = f"; similar: {', '.join(similar)}" if similar else ""
            return f"{run.id} has no figure of this name{hint}"
        if entry.unit != promised.base_unit:
            return (
                f"it is measured in {entry.unit or 'no unit'}, and promised in "
                f"{promised.unit or 'no unit'}"
            )
        if entry.better != promised.better:
            key = "at_least" if entry.better == "higher" else "at_most"
            return f"{entry.better} is better for this figure: it needs {key}"
        if not entry.by_place or entry.reasons:
            why = "; ".join(dict.fromkeys(entry.reasons)) or "the training is not complete"
            return f"{run.id}: {why}"
    return None


def repeats_of(entries: Sequence[MeasuredFigure], place: str) -> Repeats:
    """Return values of a figure at one place that are independent of each other.

    There is one per run, the mean over its trainings: they share the state of the machine, so that
    they do not show how much runs differ. If the seed affects the figure, runs with the same seeds
    count as one.
    """
    by_run: list[list[Sample]] = [
        entry.by_place[place] for entry in entries if place in entry.by_place
    ]
    values = [mean([sample.value for sample in run]) for run in by_run]
    if not entries[0].depends_on_seed:
        return Repeats(tuple(values), "runs", len(by_run))
    by_seeds: dict[frozenset[int | None], list[float]] = {}
    for run, value in zip(by_run, values, strict=True):
        by_seeds.setdefault(frozenset(sample.seed for sample in run), []).append(value)
    return Repeats(tuple(map(mean, by_seeds.values())), "seeds", len(by_run))


def _judged(
    reference: Reference,
    promised: PromisedFigure,
    place: str | None,
    repeats: Repeats | None,
    missing: str | None = None,
) -> JudgedFigure:
    confidence = reference.confidence_of(promised)
    values = repeats.values if repeats else ()
    judged = JudgedFigure(
        name=promised.name,
        place=place,
        unit=promised.base_unit,
        better=promised.better,
        promised=promised.promised,
        threshold=promised.threshold,
        confidence=confidence,
        basis=repeats.basis if repeats else None,
        values=values,
        mean=mean(values) if values else None,
        low=None,
        high=None,
        verdict="missing",
        reason=missing,
    )
    if not values:
        return judged
    asked = reference.judgement.repeats
    runs = repeats.runs if repeats else 0
    changes: dict[str, object] = {"verdict": "undecided"}
    if len(values) > 1:
        bounds = one_sided_bounds(values, confidence=confidence)
        # Only a quality has no unit, and it may be negative; speeds, times and powers are not.
        low = max(bounds.low, 0.0) if promised.base_unit and min(values) >= 0 else bounds.low
        verdict = decide(bounds, threshold=promised.threshold, better=promised.better)
        changes = {"low": low, "high": bounds.high, "verdict": verdict}
    if runs < asked:
        # Neither acceptance nor rejection: a few runs that agree by chance would decide both.
        changes |= {"verdict": "undecided", "more": asked - runs, "reason": few_runs(runs, asked)}
    elif len(values) == 1:
        changes |= {"more": asked - 1, "reason": "all runs have the same seed"}
    elif changes["verdict"] == "undecided":
        needed = repeats_needed(values, threshold=promised.threshold, confidence=confidence)
        changes["more"] = None if needed is None else max(needed - len(values), 1)
        changes["reason"] = _undecided_reason(values, promised.threshold)
    return judged.model_copy(update=changes)


def few_runs(runs: int, asked: int) -> str:
    """Return why so few runs decide nothing."""
    return f"measured in {runs} of the {asked} runs that the reference asks for"


def _undecided_reason(values: Sequence[float], threshold: float) -> str:
    centre = mean(values)
    if centre == 0:
        return "the mean is 0"
    return (
        f"the values spread by {percent(stdev(values) / abs(centre), digits=2)} around a mean that"
        f" is {percent(abs(centre - threshold) / abs(centre), digits=2)} from the limit"
    )


def _judge_spread(
    reference: Reference,
    promised: PromisedFigure,
    allowed: float,
    judged: Sequence[JudgedFigure],
    runs: int,
) -> JudgedFigure:
    """Return the verdict on (best − worst) / mean over the nodes.

    Its bounds follow from those of the nodes: at most, the true values of the best and the worst
    node are at the outer ends of their intervals, and at least, at the inner ends. ``runs`` is the
    smallest number of runs on a node.
    """
    asked = reference.judgement.repeats
    confidence = reference.confidence_of(promised)
    known = {figure.place or MACHINE: figure for figure in judged if figure.mean is not None}
    result = JudgedFigure(
        name=f"{promised.name}.{NODE_SPREAD}",
        place=None,
        unit="share",
        better="lower",
        promised=allowed,
        threshold=allowed,
        confidence=confidence,
        basis="nodes",
        values=(),
        mean=None,
        low=None,
        high=None,
        verdict="missing",
        reason=f"at least two nodes are needed, and the runs name {len(known)}: {', '.join(known)}",
    )
    if len(known) < 2:
        return result
    means = {place: figure.mean or 0.0 for place, figure in known.items()}
    centre = abs(mean(list(means.values()))) or math.nan
    best, worst = max(means, key=means.__getitem__), min(means, key=means.__getitem__)
    extremes = f"highest on {best}, lowest on {worst}"
    spread = (means[best] - means[worst]) / centre
    changes: dict[str, object] = {"mean": spread, "reason": extremes}
    bounds = _spread_bounds(list(known.values()), centre, confidence)
    verdict: FigureVerdict = "undecided"
    if bounds is not None:
        verdict = decide(bounds, threshold=allowed, better="lower")
        changes |= {"low": bounds.low, "high": bounds.high, "verdict": verdict}
    if runs < asked:
        reason = f"{few_runs(runs, asked)}; {extremes}"
        changes |= {"verdict": "undecided", "more": asked - runs, "reason": reason}
    elif bounds is None:
        changes |= {"verdict": "undecided", "more": asked - 1}
    elif verdict == "undecided":
        changes["more"] = _more_for_spread(known, bounds, spread, allowed)
    return result.model_copy(update=changes)


def _spread_bounds(
    judged: Sequence[JudgedFigure], centre: float, confidence: float
) -> ConfidenceInterval | None:
    lows = [figure.low for figure in judged if figure.low is not None]
    highs = [figure.high for figure in judged if figure.high is not None]
    if len(lows) < len(judged):
        return None
    least = max(max(lows) - min(highs), 0.0)
    return ConfidenceInterval(least / centre, (max(highs) - min(lows)) / centre, confidence)


def _more_for_spread(
    known: Mapping[str, JudgedFigure], bounds: ConfidenceInterval, spread: float, allowed: float
) -> int | None:
    """Return how many more repeats would decide: intervals shrink with the square root of n."""
    margin = abs(spread - allowed)
    if margin == 0:
        return None
    width = bounds.high - spread if spread < allowed else spread - bounds.low
    repeats = min(len(figure.values) for figure in known.values())
    return max(math.ceil(repeats * (width / margin) ** 2) - repeats, 1)


def _notes(reference: Reference, runs: Sequence[RunUnderTest]) -> Iterator[str]:
    yield (
        "A figure is accepted if the one-sided confidence bound of its mean (Student's t) is on the"
        " right side of the limit, rejected if the opposite bound is on the wrong side, and"
        " otherwise undecided, as it is with fewer runs than the reference asks for. The limit is"
        " the promised value less the tolerance."
    )
    yield from _node_notes(runs)
    unsealed = [run.view.id for run in runs if run.manifest_hash is None]
    if unsealed:
        yield (
            "Runs without a manifest, so that nothing shows whether their files were changed:"
            f" {some_of(unsealed)}."
        )
    written = reference.vflops
    if written and written != __version__:
        yield f"The reference was written by vflops {written}, and judged by {__version__}."
    versions = sorted({run.view.record.versions.get("vflops") or "?" for run in runs})
    if written and any(version != written for version in versions):
        yield f"The runs were made by vflops {', '.join(versions)}, the reference by {written}."


def _node_notes(runs: Sequence[RunUnderTest]) -> Iterator[str]:
    """Yield which hosts the nodes of ``NODE=RUN`` are."""
    labelled = [run for run in runs if run.node is not None]
    pairs = {f"{run.node} is {host}" for run in labelled for host in run.hosts}
    if pairs:
        yield f"Nodes by the host that their runs recorded: {some_of(sorted(pairs))}."
    unknown = [run.view.id for run in labelled if not run.hosts]
    if unknown:
        yield f"Runs that record no host, so that their node is not proven: {some_of(unknown)}."
