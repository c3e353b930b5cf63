"""Compares sides, each a run or several repeats of it, with the first side, called A.

For every figure, a test decides whether chance explains the difference.
"""

from __future__ import annotations

import string
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from vflops.errors import UsageError
from vflops.metrics.statistics import mean
from vflops.metrics.welch import MeanDifference, holm
from vflops.results.check.checking import check
from vflops.results.figures import FigureName, Sample
from vflops.results.score.unscored import REHEARSAL
from vflops.studies.compare import differences
from vflops.studies.compare.comparison import ComparedFigure, Comparison, SideRecord, Verdict
from vflops.studies.compare.figure_pairs import MIN_REPEATS, FigurePair
from vflops.studies.compare.run_view import RunView, read_run_view
from vflops.units import percent

LEVEL = 0.05
"""The significance level."""
SEPARATOR = "vs"
"""The word between the runs of one side and those of the next."""


@dataclass(frozen=True)
class Side:
    """One run, or several repeats of it."""

    name: str
    runs: tuple[RunView, ...]


@dataclass(frozen=True)
class _Tested:
    """A figure of two sides with its test, before the correction for multiple tests."""

    side: str
    pair: FigurePair[FigureName]
    test: MeanDifference | None
    """None if there are too few repeats."""
    untested: str | None
    """Why there is no test."""
    incomparable: str | None = None
    """Why not even the difference means anything."""


def skip_other_files(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the arguments without what exists but is not a run, and a note for each of those.

    So ``vflops compare runs/*`` works although pages and experiments are there too. If fewer than
    two sides remain, nothing is skipped: ``read_sides`` then says what is wrong.
    """
    notes = {}
    for argument in arguments:
        path = Path(argument)
        if argument != SEPARATOR and path.exists() and not (path / "run.json").exists():
            notes[argument] = "it is a file" if path.is_file() else "it has no run.json"
    kept = [argument for argument in arguments if argument not in notes]
    groups = _groups(kept)
    if len(groups) < 2 or not all(groups):
        return list(arguments), []
    return kept, [f"skipped {name}: {reason}" for name, reason in notes.items()]


def _groups(arguments: Sequence[str]) -> list[list[str]]:
    """Return the runs of each side."""
    groups: list[list[str]] = [[]]
    for argument in arguments:
        if argument == SEPARATOR:
            groups.append([])
        else:
            groups[-1].append(argument)
    return [[path] for path in groups[0]] if len(groups) == 1 else groups


def read_sides(arguments: Sequence[str]) -> list[Side]:
    """Read the runs named on the command line.

    Each run is a side; if there is a ``vs``, a side is the runs between two of them.
    """
    groups = _groups(arguments)
    if len(groups) < 2 or not all(groups):
        raise UsageError(
            f"{' '.join(arguments) or 'no run'}: a comparison needs two sides",
            hint="vflops compare A B, or several repeats per side: vflops compare A1 A2 vs B1 B2",
        )
    if len(groups) > len(string.ascii_uppercase):
        raise UsageError(
            f"{len(groups)} sides are given; at most 26 can be compared", hint="name fewer runs"
        )
    given = [
        Side(name, tuple(read_run_view(Path(path)) for path in group))
        for name, group in zip(string.ascii_uppercase, groups, strict=False)
    ]
    _require_different_runs(given)
    return given


def _require_different_runs(given: Sequence[Side]) -> None:
    """Raise UsageError if a run is given twice, be it the same folder or a copy."""
    runs = [run for side in given for run in side.runs]
    for id, times in Counter(run.id for run in runs).items():
        if times > 1:
            paths = [run.contents.folder.path for run in runs if run.id == id]
            raise UsageError(
                f"run {id} is given {times} times: {', '.join(map(str, paths))}",
                hint="give each run once; to check whether a copy was altered: "
                f"vflops verify {paths[-1]}",
            )


def compare(given: Sequence[Side]) -> Comparison:
    """Return everything that differs between the first side and each of the others."""
    firsts, names = [side.runs[0] for side in given], [side.name for side in given]
    records = tuple(_record(side) for side in given)
    tested = [figure for side in given[1:] for figure in _tested(given[0], side)]
    system, equal = differences.system([run.facts for run in firsts])
    return Comparison(
        sides=records,
        level=LEVEL,
        figures=tuple(_judged(tested)),
        system=system,
        equal_layers=equal,
        settings=differences.settings([side.runs for side in given]),
        versions=differences.versions([run.record.versions for run in firsts]),
        warnings=(
            *differences.comparability_warnings(names, firsts),
            *(
                line
                for side in given
                for line in differences.repeat_differences(side.name, side.runs)
            ),
            *(line for side in given for line in _unfinished(side)),
            *(line for record in records for line in _broken_rules(record)),
        ),
        notes=tuple(_notes(given)),
    )


def _record(side: Side) -> SideRecord:
    first = side.runs[0]
    failures = {run.id: check(run.contents).failures for run in side.runs}
    return SideRecord(
        name=side.name,
        runs=tuple(run.id for run in side.runs),
        workload=first.record.workload,
        created_utc=first.record.created_utc,
        machine=first.machine_text,
        failed={
            id: tuple(finding.rule for finding in findings)
            for id, findings in failures.items()
            if findings
        },
    )


def _unfinished(side: Side) -> Iterator[str]:
    for run in side.runs:
        if not run.score.complete:
            yield f"side {side.name}: {run.id} is not complete: {run.score.incomplete_reason}"
        if run.score.rehearsal:
            yield f"side {side.name}: {run.id} is a {REHEARSAL}"


def _broken_rules(side: SideRecord) -> Iterator[str]:
    for run, rules in side.failed.items():
        yield f"side {side.name}: {run} breaks its rules: {', '.join(rules)}"


def _notes(given: Sequence[Side]) -> Iterator[str]:
    yield (
        "Intervals are 95 % confidence intervals of each figure's ratio to A (Welch's t-test). A"
        f" difference is significant if it remains so at {percent(LEVEL, digits=0)} after Holm's"
        " correction for all results, or for all ceilings."
    )
    few = [side.name for side in given if len(side.runs) < MIN_REPEATS]
    if few and any(
        len(repeats) > 1 for side in given for run in side.runs for repeats in run.samples.values()
    ):
        yield (
            f"For sides with fewer than {MIN_REPEATS} runs ({', '.join(few)}), the trainings"
            " within a run are the repeats, so the intervals do not include variation between runs."
        )


def _tested(base: Side, other: Side) -> Iterator[_Tested]:
    names = dict.fromkeys(
        name for side in (base, other) for run in side.runs for name in run.samples
    )
    for name in names:
        samples = [
            [run.samples[name] for run in side.runs if name in run.samples]
            for side in (base, other)
        ]
        by_run = all(len(runs) >= MIN_REPEATS for runs in samples)
        first, second = (_repeats(name, runs, by_run) for runs in samples)
        pair = FigurePair(name, first, second)
        incomparable = _incomparable(name, (*base.runs, *other.runs)) if first and second else None
        if incomparable is not None:
            yield _Tested(other.name, pair, None, incomparable, incomparable)
            continue
        untested = _too_few(pair, samples)
        if untested is None and not pair.has_spread:
            untested = "all repeats of a side are exactly equal"
        yield _Tested(other.name, pair, None if untested else pair.test(), untested)


def _incomparable(name: FigureName, runs: Sequence[RunView]) -> str | None:
    """Return why a figure cannot be compared between these runs; None if it can."""
    workload = name.subject.partition(", ")[0]  # an ensemble's subject also has its models
    reason = differences.goal_difference(workload, runs) if name.depends_on_goal else None
    if reason is None and (name.depends_on_goal or name.is_quality):
        reason = differences.text_difference(workload, runs)
    if reason is None and name.counts_operations:
        reason = differences.work_difference(workload, runs)
    return reason


def _repeats(name: FigureName, runs: Sequence[Sequence[Sample]], by_run: bool) -> list[float]:
    """Return values that are independent of each other.

    For a figure that the seed affects, there is one per seed. For other figures, there is one per
    run if there are enough runs, because the trainings of a run share the state of the machine.
    """
    if name.depends_on_seed:
        seeds = dict.fromkeys(sample.seed for run in runs for sample in run)
        return [mean([s.value for run in runs for s in run if s.seed == seed]) for seed in seeds]
    if by_run:
        return [mean([sample.value for sample in run]) for run in runs]
    return [sample.value for run in runs for sample in run]


def _too_few(
    pair: FigurePair[FigureName], samples: Sequence[Sequence[Sequence[Sample]]]
) -> str | None:
    """Return why there are too few repeats for a test; None if there are enough."""
    repeats = min(len(pair.base), len(pair.value))
    if repeats >= MIN_REPEATS:
        return None
    trained = min(sum(len(run) for run in runs) for runs in samples)
    what = "seed" if pair.name.depends_on_seed and trained >= MIN_REPEATS else "repeat"
    return f"{repeats} {what}{'' if repeats == 1 else 's'}, {MIN_REPEATS} are needed"


def _judged(figures: Sequence[_Tested]) -> Iterator[ComparedFigure]:
    """Yield each figure with its verdict; results and ceilings are corrected separately."""
    significant: set[int] = set()
    tests: dict[str, int] = {}
    for kind in ("result", "ceiling"):
        p_values = {
            index: figure.test.p
            for index, figure in enumerate(figures)
            if figure.test is not None and figure.pair.name.kind == kind
        }
        tests[kind] = len(p_values)
        rejected = holm(list(p_values.values()), level=LEVEL)
        significant |= {index for index, is_so in zip(p_values, rejected, strict=True) if is_so}
    for index, figure in enumerate(figures):
        yield _compared(figure, index in significant, tests[figure.pair.name.kind])


def _compared(figure: _Tested, significant: bool, tests: int) -> ComparedFigure:
    pair, test = figure.pair, figure.test
    name, base = pair.name, pair.base_mean
    verdict, reason = _verdict(figure, significant)
    if verdict == "not significant" and test is not None and test.p <= LEVEL:
        reason = f"not after the correction for {tests} figures"
    return ComparedFigure(
        side=figure.side,
        workload=name.subject,
        name=name.name,
        unit=name.unit,
        better=name.better,
        kind=name.kind,
        base=base,
        value=pair.value_mean,
        repeats=(len(pair.base), len(pair.value)),
        difference=None if figure.incomparable else pair.difference,
        low=pair.bound(test.low) if base and test else None,
        high=pair.bound(test.high) if base and test else None,
        p=test.p if test else None,
        verdict=verdict,
        reason=reason,
    )


def _verdict(figure: _Tested, significant: bool) -> tuple[Verdict, str | None]:
    base, value = figure.pair.base_mean, figure.pair.value_mean
    if base is None or value is None:
        return "absent", f"{'A' if base is None else figure.side} has none"
    if figure.incomparable is not None:
        return "cannot tell", figure.incomparable
    if figure.test is None:
        return ("equal", None) if base == value else ("cannot tell", figure.untested)
    if not significant:
        return "not significant", None
    higher_is_better = figure.pair.name.better == "higher"
    return ("better" if (value > base) == higher_is_better else "worse"), None
