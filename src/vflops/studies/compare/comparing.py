"""From sides to their comparison: every figure beside that of A, and whether chance explains it."""

from __future__ import annotations

import math
import string
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from vflops.errors import UsageError
from vflops.metrics.statistics import mean
from vflops.metrics.welch import MeanDifference, holm, welch
from vflops.results.check.checking import check
from vflops.results.figures import FigureName, Sample
from vflops.studies.compare import differences
from vflops.studies.compare.comparison import ComparedFigure, Comparison, SideRecord, Verdict
from vflops.studies.compare.side import ReadRun, read_run
from vflops.units import percent

LEAST_REPEATS = 3
"""Of either side, for a difference to be told from chance."""
LEVEL = 0.05
SEPARATOR = "vs"
"""The word between the runs of one side and those of the next."""


@dataclass(frozen=True)
class Side:
    """A run, or several that repeat one thing."""

    name: str
    runs: tuple[ReadRun, ...]


@dataclass(frozen=True)
class _Row:
    """A figure of two sides, before it is judged."""

    side: str
    name: FigureName
    base: list[float]
    value: list[float]
    few: str | None
    """Why it cannot be told."""
    found: MeanDifference | None = None

    @property
    def by_ratio(self) -> bool:
        """Whether the means are compared as a ratio: of figures that all are above 0."""
        return min(*self.base, *self.value) > 0

    def share(self, difference: float) -> float:
        """A bound of the difference as a share of A's."""
        if self.by_ratio:
            return math.expm1(difference)
        share = difference / abs(mean(self.base))
        return share if min(*self.base, *self.value) < 0 else max(share, -1.0)


def sides(words: Sequence[str]) -> list[Side]:
    """The runs that are named, by side: each its own, or those up to the next ``vs`` together."""
    groups: list[list[str]] = [[]]
    for word in words:
        if word == SEPARATOR:
            groups.append([])
        else:
            groups[-1].append(word)
    if len(groups) == 1:
        groups = [[word] for word in groups[0]]
    if len(groups) < 2 or not all(groups):
        raise UsageError(
            f"{' '.join(words) or 'no run'}: a comparison needs two sides",
            hint="vflops compare A B, or several repeats a side: vflops compare A1 A2 vs B1 B2",
        )
    if len(groups) > len(string.ascii_uppercase):
        raise UsageError(f"{len(groups)} sides, at most 26 are compared", hint="name fewer")
    found = [
        Side(name, tuple(read_run(Path(word)) for word in group))
        for name, group in zip(string.ascii_uppercase, groups, strict=False)
    ]
    _must_differ(found)
    return found


def _must_differ(found: Sequence[Side]) -> None:
    """Refuse a run that is given twice, itself or a copy: it is no repeat and no other side."""
    runs = [run for side in found for run in side.runs]
    for id, times in Counter(run.id for run in runs).items():
        if times > 1:
            paths = [run.contents.folder.path for run in runs if run.id == id]
            raise UsageError(
                f"run {id} is given {times} times: {', '.join(map(str, paths))}",
                hint="give each run once; whether a copy was altered says: "
                f"vflops verify {paths[-1]}",
            )


def compare(given: Sequence[Side]) -> Comparison:
    """All that differs between the sides, each against the first."""
    firsts, names = [side.runs[0] for side in given], [side.name for side in given]
    records = tuple(_side(side) for side in given)
    rows = [row for side in given[1:] for row in _rows(given[0], side)]
    system, equal = differences.system([run.facts for run in firsts])
    return Comparison(
        sides=records,
        level=LEVEL,
        figures=tuple(_judged(rows)),
        system=system,
        equal_layers=equal,
        settings=differences.settings([side.runs for side in given]),
        versions=differences.versions([run.record.versions for run in firsts]),
        warnings=(
            *differences.incomparable(names, firsts),
            *(line for side in given for line in differences.unlike(side.name, side.runs)),
            *(line for side in given for line in _unfinished(side)),
            *(line for record in records for line in _broken(record)),
        ),
        notes=tuple(_notes(given)),
    )


def _side(side: Side) -> SideRecord:
    first = side.runs[0]
    failures = {run.id: check(run.contents).failures for run in side.runs}
    return SideRecord(
        name=side.name,
        runs=tuple(run.id for run in side.runs),
        workload=first.record.workload,
        created_utc=first.record.created_utc,
        machine=first.machine,
        failed={id: tuple(each.rule for each in found) for id, found in failures.items() if found},
    )


def _unfinished(side: Side) -> Iterator[str]:
    for run in side.runs:
        if not run.score.complete:
            yield f"side {side.name}: {run.id} is not complete: {run.score.incomplete_reason}"


def _broken(side: SideRecord) -> Iterator[str]:
    for run, rules in side.failed.items():
        yield f"side {side.name}: {run} does not meet its rules: {', '.join(rules)}"


def _notes(given: Sequence[Side]) -> Iterator[str]:
    yield (
        "An interval holds the difference of its figure with 95 % (Welch, of the ratio to A); "
        f"significant is what Holm's correction leaves at {percent(LEVEL, digits=0)} of "
        "all results, and of all ceilings."
    )
    few = [side.name for side in given if len(side.runs) < LEAST_REPEATS]
    if few and any(
        len(each) > 1 for side in given for run in side.runs for each in run.samples.values()
    ):
        yield (
            f"Repeats are trainings within a run where a side has fewer than {LEAST_REPEATS} runs "
            f"({', '.join(few)}): what differs from one run to the next is not in their intervals."
        )


def _rows(base: Side, other: Side) -> Iterator[_Row]:
    names = dict.fromkeys(
        name for side in (base, other) for run in side.runs for name in run.samples
    )
    for name in names:
        held = [
            [run.samples[name] for run in side.runs if name in run.samples]
            for side in (base, other)
        ]
        by_run = all(len(runs) >= LEAST_REPEATS for runs in held)
        first, second = (_repeats(name, runs, by_run) for runs in held)
        row = _Row(other.name, name, first, second, _few(name, held, (first, second)))
        spread = len(set(first)) > 1 or len(set(second)) > 1
        if row.few is None and spread:
            row = replace(row, found=_tested(row))
        elif row.few is None:
            row = replace(row, few="all repeats of a side are equal to the last digit")
        yield row


def _tested(row: _Row) -> MeanDifference:
    """Welch's test: of logarithms where figures have them, so that no bound is below −100 %."""
    if not row.by_ratio:
        return welch(row.base, row.value)
    return welch([math.log(each) for each in row.base], [math.log(each) for each in row.value])


def _repeats(name: FigureName, runs: Sequence[Sequence[Sample]], by_run: bool) -> list[float]:
    """Values that are independent of each other.

    Of a figure that the seed decides that is one a seed; of another one a run, where there are runs
    enough, because trainings within a run share its circumstances.
    """
    if name.seeded:
        seeds = dict.fromkeys(each.seed for run in runs for each in run)
        return [mean([e.value for run in runs for e in run if e.seed == seed]) for seed in seeds]
    if by_run:
        return [mean([each.value for each in run]) for run in runs]
    return [each.value for run in runs for each in run]


def _few(
    name: FigureName,
    held: Sequence[Sequence[Sequence[Sample]]],
    repeats: Sequence[Sequence[float]],
) -> str | None:
    """Why two sides have too few repeats to tell a difference; None where they have enough."""
    least = min(len(each) for each in repeats)
    if least >= LEAST_REPEATS:
        return None
    trained = min(sum(len(run) for run in runs) for runs in held)
    what = "seed" if name.seeded and trained >= LEAST_REPEATS else "repeat"
    return f"{least} {what}{'' if least == 1 else 's'}, {LEAST_REPEATS} are needed"


def _judged(rows: Sequence[_Row]) -> Iterator[ComparedFigure]:
    """Each row with its verdict; results and ceilings are corrected for their own number."""
    significant: set[int] = set()
    tests: dict[str, int] = {}
    for kind in ("result", "ceiling"):
        tested = [
            (at, row.found.p)
            for at, row in enumerate(rows)
            if row.found is not None and row.name.kind == kind
        ]
        tests[kind] = len(tested)
        named = holm([p for _, p in tested], level=LEVEL)
        significant |= {at for (at, _), yes in zip(tested, named, strict=True) if yes}
    for at, row in enumerate(rows):
        yield _figure(row, at in significant, tests[row.name.kind])


def _figure(row: _Row, significant: bool, tests: int) -> ComparedFigure:
    name = row.name
    base = mean(row.base) if row.base else None
    value = mean(row.value) if row.value else None
    verdict, reason = _verdict(row, base, value, significant)
    if verdict == "not significant" and row.found is not None and row.found.p <= LEVEL:
        reason = f"not among {tests} figures"
    unit = abs(base) if base else None  # a share of nothing is none
    return ComparedFigure(
        side=row.side,
        workload=name.workload,
        name=name.name,
        unit=name.unit,
        better=name.better,
        kind=name.kind,
        base=base,
        value=value,
        repeats=(len(row.base), len(row.value)),
        difference=(value - base) / unit if unit and value is not None and base else None,
        low=row.share(row.found.low) if unit and row.found else None,
        high=row.share(row.found.high) if unit and row.found else None,
        p=row.found.p if row.found else None,
        verdict=verdict,
        reason=reason,
    )


def _verdict(
    row: _Row, base: float | None, value: float | None, significant: bool
) -> tuple[Verdict, str | None]:
    if base is None or value is None:
        return "absent", f"{'A' if base is None else row.side} has none"
    if row.found is None:
        return ("equal", None) if base == value else ("cannot tell", row.few)
    if not significant:
        return "not significant", None
    return ("better" if (value > base) == (row.name.better == "higher") else "worse"), None
