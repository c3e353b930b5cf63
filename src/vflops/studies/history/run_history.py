"""The history of a folder: finished runs in groups, with the changes of each figure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from itertools import pairwise
from pathlib import Path

from vflops.errors import FolderError, VflopsError
from vflops.metrics.statistics import mean
from vflops.results.figures import FigureName
from vflops.studies.compare import differences
from vflops.studies.history.history_data import (
    Change,
    Course,
    Group,
    HistoryRecord,
    LeftOut,
    Level,
)
from vflops.studies.history.past_runs import ReadPastRun, read_past_run, run_folders
from vflops.studies.history.segments import LEAST_RUNS, chance_between, change_points

CHANCE = 0.01
"""The chance of any false change among the results of a group, and among its ceilings."""
LEAST_CHANGE = 0.02
_MOST_APART = 3
"""The most facts that distinguish a group from another."""


def history(
    folder: Path, *, since: datetime | None = None, least_change: float = LEAST_CHANGE
) -> HistoryRecord:
    """Return the finished runs below ``folder`` in groups, and the folders that are left out."""
    runs: dict[str, ReadPastRun] = {}
    unfinished: list[ReadPastRun] = []
    left_out = []
    for path in run_folders(folder):
        below = str(path.relative_to(folder))
        try:
            run = read_past_run(path, below)
            if run.id in runs:
                raise FolderError(f"a copy of {runs[run.id].folder}")
            if run.fault is not None:
                if not run.in_progress:
                    unfinished.append(run)
                raise FolderError(f"not complete: {run.fault}")
        except VflopsError as error:
            left_out.append(LeftOut(folder=below, reason=error.message))
        except Exception as error:  # a damaged file may raise anything; the others are still read
            reason = f"cannot be read: {type(error).__name__}: {error}"
            left_out.append(LeftOut(folder=below, reason=reason))
        else:
            if since is None or run.created >= since:
                runs[run.id] = run
    groups: dict[str, list[ReadPastRun]] = {}
    ended = sorted(runs.values(), key=lambda run: (run.created, run.id))
    unfinished.sort(key=lambda run: (run.created, run.id))
    for run in ended:
        groups.setdefault(run.kind, []).append(run)
    return HistoryRecord(
        chance=CHANCE,
        least_change=least_change,
        least_runs=LEAST_RUNS,
        groups=tuple(
            _group(
                runs,
                [run for run in unfinished if _follows(run, ended) == kind],
                _apart(kind, groups),
                least_change,
            )
            for kind, runs in groups.items()
        ),
        left_out=tuple(left_out),
    )


def _apart(kind: str, groups: Mapping[str, Sequence[ReadPastRun]]) -> tuple[str, ...]:
    """Return what distinguishes a group from others of the same workload and profile.

    The machine is left out, because it is shown anyway.
    """
    newest = groups[kind][-1]
    titled = [runs[-1] for runs in groups.values()]
    like = [
        run for run in titled if (run.workload, run.profile) == (newest.workload, newest.profile)
    ]
    facts = [{**run.settings, **run.measured} for run in like]
    differing = differences.differing("group", facts)
    at = like.index(newest)
    return tuple(f"{fact.name} {fact.values[at] or 'none'}" for fact in differing[:_MOST_APART])


def _group(
    runs: Sequence[ReadPastRun],
    unfinished: Sequence[ReadPastRun],
    apart: tuple[str, ...],
    least_change: float,
) -> Group:
    newest = runs[-1]
    names = dict.fromkeys(name for run in runs for name in run.figures)
    tests = {kind: sum(n.kind == kind for n in names) for kind in ("result", "ceiling")}
    return Group(
        kind=newest.kind,
        workload=newest.workload,
        profile=newest.profile,
        machine=newest.machine,
        runs=tuple(run.as_data() for run in runs),
        unfinished=tuple(run.as_data() for run in unfinished),
        courses=tuple(
            _course(name, runs, CHANCE / tests[name.kind], least_change) for name in names
        ),
        apart=apart,
    )


def _follows(run: ReadPastRun, ended: Sequence[ReadPastRun]) -> str | None:
    """Return the kind of the last finished run of the same settings, if it is older.

    The unfinished ``run`` may have died before it recorded its machine, which is then not compared.
    """
    settings = (run.workload, run.settings)
    same = [
        other
        for other in ended
        if (other.workload, other.settings) == settings
        and (other.machine == run.machine or not run.facts)
    ]
    return same[-1].kind if same and same[-1].created < run.created else None


def _course(
    name: FigureName, runs: Sequence[ReadPastRun], chance: float, least_change: float
) -> Course:
    values = [run.figures.get(name) for run in runs]
    positions = [at for at, value in enumerate(values) if value is not None]
    known = [value for value in values if value is not None]
    points = [0, *change_points(known, chance=chance, least_change=least_change), len(known)]
    parts = [known[a:b] for a, b in pairwise(points)]
    levels = [
        Level(first=positions[a], last=positions[b - 1], mean=mean(known[a:b]))
        for a, b in pairwise(points)
    ]
    return Course(
        workload=name.subject,
        name=name.name,
        unit=name.unit,
        better=name.better,
        kind=name.kind,
        values=tuple(values),
        levels=tuple(levels),
        changes=tuple(_changes(name, runs, levels, parts)),
        regression=_regression(name, runs, levels, parts, chance, least_change),
    )


def _regression(
    name: FigureName,
    runs: Sequence[ReadPastRun],
    levels: Sequence[Level],
    parts: Sequence[list[float]],
    chance: float,
    least_change: float,
) -> Change | None:
    """Return the change from the best earlier level that the newest is worse than, if any."""
    earlier = range(len(levels) - 1)
    best = sorted(earlier, key=lambda at: levels[at].mean, reverse=name.better == "higher")
    for at in best:
        change = _change(name, runs, (levels[at], levels[at + 1], levels[-1]), parts[at], parts[-1])
        if change.worse and abs(change.difference) >= least_change and change.p <= chance:
            return change
    return None


def _changes(
    name: FigureName,
    runs: Sequence[ReadPastRun],
    levels: Sequence[Level],
    parts: Sequence[list[float]],
) -> Iterator[Change]:
    for at in range(len(levels) - 1):
        after = levels[at + 1]
        yield _change(name, runs, (levels[at], after, after), parts[at], parts[at + 1])


def _change(
    name: FigureName,
    runs: Sequence[ReadPastRun],
    levels: tuple[Level, Level, Level],
    old_part: Sequence[float],
    new_part: Sequence[float],
) -> Change:
    """Return the change from the first to the third level; the second followed the first."""
    before, next_, after = levels
    old, new = runs[before.last], runs[next_.first]
    return Change(
        run=new.id,
        after=old.id,
        created_utc=new.created.isoformat(),
        difference=(after.mean - before.mean) / abs(before.mean) if before.mean else 0.0,
        p=chance_between(old_part, new_part),
        worse=(after.mean < before.mean) == (name.better == "higher"),
        differing=(
            *differences.system([old.facts, new.facts])[0],
            *differences.versions([old.versions, new.versions]),
        ),
    )
