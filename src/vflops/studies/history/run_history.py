"""The history of a folder: its finished runs in groups, and how each figure changed over time."""

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
from vflops.studies.history.past_runs import RunSummary, read_run_summary, run_folders
from vflops.studies.history.segments import MIN_RUNS, chance_between, change_points

CHANCE = 0.01
"""The probability of any false change among the results of a group, and among its ceilings."""
MIN_CHANGE = 0.02
_MAX_FACTS = 3
"""The largest number of facts that are listed to tell groups apart."""


def history(
    folder: Path, *, since: datetime | None = None, least_change: float = MIN_CHANGE
) -> HistoryRecord:
    """Return the history of the runs below ``folder``.

    Finished runs are grouped by measurement and machine; folders that are left out have a reason.
    """
    runs: dict[str, RunSummary] = {}
    unfinished: list[RunSummary] = []
    left_out = []
    for path in run_folders(folder):
        relative_path = str(path.relative_to(folder))
        try:
            run = read_run_summary(path, relative_path)
            if run.id in runs:
                raise FolderError(f"a copy of {runs[run.id].folder}")
            if run.fault is not None:
                if not run.in_progress:
                    unfinished.append(run)
                raise FolderError(f"not complete: {run.fault}")
            if run.rehearsal:
                raise FolderError("a rehearsal, whose speeds are no measurement")
        except VflopsError as error:
            left_out.append(LeftOut(folder=relative_path, reason=error.message))
        except Exception as error:  # a damaged file may raise anything; the others are still read
            reason = f"cannot be read: {type(error).__name__}: {error}"
            left_out.append(LeftOut(folder=relative_path, reason=reason))
        else:
            if since is None or run.created >= since:
                runs[run.id] = run
    groups: dict[str, list[RunSummary]] = {}
    finished = sorted(runs.values(), key=lambda run: (run.created, run.id))
    unfinished.sort(key=lambda run: (run.created, run.id))
    for run in finished:
        groups.setdefault(run.group_key, []).append(run)
    return HistoryRecord(
        chance=CHANCE,
        least_change=least_change,
        least_runs=MIN_RUNS,
        groups=tuple(
            _group(
                runs,
                [run for run in unfinished if _group_of_unfinished(run, finished) == key],
                _distinguishing_facts(key, groups),
                least_change,
            )
            for key, runs in groups.items()
        ),
        left_out=tuple(left_out),
    )


def _distinguishing_facts(key: str, groups: Mapping[str, Sequence[RunSummary]]) -> tuple[str, ...]:
    """Return what distinguishes a group from others of the same workload and profile.

    The machine is left out, because it is shown anyway.
    """
    newest = groups[key][-1]
    title = (newest.workload, newest.profile)
    newest_runs = [runs[-1] for runs in groups.values()]
    similar = [run for run in newest_runs if (run.workload, run.profile) == title]
    facts = [{**run.settings, **run.data_and_rules} for run in similar]
    differing = differences.differing("group", facts)
    index = similar.index(newest)
    return tuple(_fact(fact.name, fact.values[index]) for fact in differing[:_MAX_FACTS])


def _fact(name: str, value: str | None) -> str:
    """Return a fact in words; a setting that was left out is null in JSON."""
    return f"{name} {'not set' if value == 'null' else value or 'none'}"


def _group(
    runs: Sequence[RunSummary],
    unfinished: Sequence[RunSummary],
    apart: tuple[str, ...],
    least_change: float,
) -> Group:
    newest = runs[-1]
    names = dict.fromkeys(name for run in runs for name in run.figures)
    tests = {kind: sum(n.kind == kind for n in names) for kind in ("result", "ceiling")}
    return Group(
        kind=newest.group_key,
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


def _group_of_unfinished(run: RunSummary, finished: Sequence[RunSummary]) -> str | None:
    """Return the group of the last finished run with the same settings, if that run is older.

    The unfinished ``run`` may have died before it recorded its machine, which is then not compared.
    """
    settings = (run.workload, run.settings)
    same = [
        other
        for other in finished
        if (other.workload, other.settings) == settings
        and (other.machine == run.machine or not run.facts)
    ]
    return same[-1].group_key if same and same[-1].created < run.created else None


def _course(
    name: FigureName, runs: Sequence[RunSummary], chance: float, least_change: float
) -> Course:
    values = [run.figures.get(name) for run in runs]
    positions = [index for index, value in enumerate(values) if value is not None]
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
    runs: Sequence[RunSummary],
    levels: Sequence[Level],
    parts: Sequence[list[float]],
    chance: float,
    least_change: float,
) -> Change | None:
    """Return the change to the newest level from the best earlier one, if it is a regression."""
    earlier = range(len(levels) - 1)
    best = sorted(earlier, key=lambda i: levels[i].mean, reverse=name.better == "higher")
    for i in best:
        change = _change(name, runs, (levels[i], levels[i + 1], levels[-1]), parts[i], parts[-1])
        if change.worse and abs(change.difference) >= least_change and change.p <= chance:
            return change
    return None


def _changes(
    name: FigureName,
    runs: Sequence[RunSummary],
    levels: Sequence[Level],
    parts: Sequence[list[float]],
) -> Iterator[Change]:
    for i in range(len(levels) - 1):
        after = levels[i + 1]
        yield _change(name, runs, (levels[i], after, after), parts[i], parts[i + 1])


def _change(
    name: FigureName,
    runs: Sequence[RunSummary],
    levels: tuple[Level, Level, Level],
    old_part: Sequence[float],
    new_part: Sequence[float],
) -> Change:
    """Return the change from the first to the third of ``levels``; the second followed the first.

    The change is dated at the start of the second level.
    """
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
