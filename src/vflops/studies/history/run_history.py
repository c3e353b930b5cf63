"""From a folder to its history: finished runs, grouped, with the changes of each figure."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

from vflops.errors import FolderError, UsageError, VflopsError
from vflops.metrics.statistics import mean
from vflops.record.files.lock import is_locked
from vflops.results.check.checking import check
from vflops.results.figures import FigureName
from vflops.studies.compare import differences
from vflops.studies.compare.side import Facts, read_run
from vflops.studies.history.history_data import (
    Change,
    Course,
    Group,
    HistoryRecord,
    LeftOut,
    Level,
    PastRun,
)
from vflops.studies.history.segments import LEAST_RUNS, chance_between, change_points

CHANCE = 0.01
"""That any result of a group without a change is given one; so for its ceilings."""
LEAST_CHANGE = 0.02
_MOST_APART = 3
"""Facts by which a group is told from another."""
_DEPTH = 4
"""Folders below the one that is named."""


@dataclass(frozen=True)
class _Past:
    """What a history keeps of a run: its logs would fill the memory."""

    id: str
    folder: str
    created: datetime
    kind: str
    workload: str
    profile: str
    machine: str
    facts: Facts
    versions: Mapping[str, str | None]
    figures: dict[FigureName, float]
    settings: Mapping[str, str]
    """That make it another measurement."""
    measured: Mapping[str, str]
    """Data and rules of counting, by workload."""
    fault: str | None
    """Why it did not come to its end."""
    goes_on: bool
    rules_broken: tuple[str, ...]

    def told(self) -> PastRun:
        """What is shown of it."""
        return PastRun(
            run=self.id,
            folder=self.folder,
            created_utc=self.created.isoformat(),
            rules_broken=self.rules_broken,
        )


def history(
    folder: Path, *, since: datetime | None = None, least_change: float = LEAST_CHANGE
) -> HistoryRecord:
    """The finished runs below ``folder`` by what they measured; what cannot be read is named."""
    runs: dict[str, _Past] = {}
    unfinished: list[_Past] = []
    left_out = []
    for path in _run_folders(folder):
        place = str(path.relative_to(folder))
        try:
            run = _read(path, place)
            if run.id in runs:
                raise FolderError(f"a copy of {runs[run.id].folder}")
            if run.fault is not None:
                if not run.goes_on:
                    unfinished.append(run)
                raise FolderError(f"not complete: {run.fault}")
        except VflopsError as error:
            left_out.append(LeftOut(folder=place, reason=error.message))
        except Exception as error:  # whatever a damaged file leads to, the others are read
            reason = f"cannot be read: {type(error).__name__}: {error}"
            left_out.append(LeftOut(folder=place, reason=reason))
        else:
            if since is None or run.created >= since:
                runs[run.id] = run
    groups: dict[str, list[_Past]] = {}
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


def _run_folders(folder: Path) -> list[Path]:
    """All run folders below, by name; what lies in a run is not looked at."""
    if not folder.is_dir():
        raise UsageError(
            f"{folder} is no folder", hint="name the folder that runs are made in, e.g. runs"
        )
    found = []
    for place, inside, files in os.walk(folder):
        here = Path(place)
        if "run.json" in files and here != folder:
            found.append(here)
            inside.clear()
        elif len(here.relative_to(folder).parts) >= _DEPTH:
            inside.clear()
    if not found:
        alone = (folder / "run.json").is_file()
        raise UsageError(
            f"{folder} is a run: a history is of several" if alone else f"no run below {folder}",
            hint=f"name the folder that it lies in: vflops history {folder.parent}"
            if alone
            else "start one: vflops run",
        )
    return sorted(found)


def _read(path: Path, place: str) -> _Past:
    run = read_run(path)
    record, whole = run.record, run.score.complete
    return _Past(
        id=record.id,
        folder=place,
        created=moment(record.created_utc),
        kind=run.kind,
        workload=record.workload,
        profile=record.settings.profile,
        machine=run.machine,
        facts=run.facts,
        versions=record.versions,
        figures={name: mean([e.value for e in each]) for name, each in run.samples.items()},
        settings=run.measurement_settings,
        measured={
            **{f"data of {name}": text[:12] for name, text in run.data.items()},
            **{f"rules of {name}": text for name, text in run.rules.items()},
        },
        fault=None if whole else run.score.incomplete_reason or "it did not come to its end",
        goes_on=is_locked(run.contents.folder.lock),
        rules_broken=tuple(each.rule for each in check(run.contents).failures) if whole else (),
    )


def moment(text: str) -> datetime:
    """A time as ISO 8601 writes it; without a zone it is UTC."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError as error:
        raise FolderError(f"{text!r} is no time", hint="e.g. 2026-01-31") from error
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def _apart(kind: str, groups: Mapping[str, Sequence[_Past]]) -> tuple[str, ...]:
    """What a group has that others of the same workload and profile have not, in words.

    Its machine, which is shown anyway, is not in it.
    """
    own = groups[kind][-1]
    titled = [runs[-1] for runs in groups.values()]
    like = [run for run in titled if (run.workload, run.profile) == (own.workload, own.profile)]
    facts = [{**run.settings, **run.measured} for run in like]
    differing = differences.differing("group", facts)
    at = like.index(own)
    return tuple(f"{each.name} {each.values[at] or 'none'}" for each in differing[:_MOST_APART])


def _group(
    runs: Sequence[_Past],
    unfinished: Sequence[_Past],
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
        runs=tuple(run.told() for run in runs),
        unfinished=tuple(run.told() for run in unfinished),
        courses=tuple(
            _course(name, runs, CHANCE / tests[name.kind], least_change) for name in names
        ),
        apart=apart,
    )


def _follows(run: _Past, ended: Sequence[_Past]) -> str | None:
    """The kind of the last run of the same thing, if that is older than this, which did not end.

    It may have died before it saw its machine or its data: those are compared where they are known.
    """
    own = (run.workload, run.settings)
    same = [
        each
        for each in ended
        if (each.workload, each.settings) == own and (each.machine == run.machine or not run.facts)
    ]
    return same[-1].kind if same and same[-1].created < run.created else None


def _course(name: FigureName, runs: Sequence[_Past], chance: float, least_change: float) -> Course:
    values = [run.figures.get(name) for run in runs]
    held = [at for at, value in enumerate(values) if value is not None]
    known = [value for value in values if value is not None]
    points = [0, *change_points(known, chance=chance, least_change=least_change), len(known)]
    parts = [known[a:b] for a, b in pairwise(points)]
    levels = [
        Level(first=held[a], last=held[b - 1], mean=mean(known[a:b])) for a, b in pairwise(points)
    ]
    return Course(
        workload=name.workload,
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
    runs: Sequence[_Past],
    levels: Sequence[Level],
    parts: Sequence[list[float]],
    chance: float,
    least_change: float,
) -> Change | None:
    """From the best level before, of those that differ from the newest by more than chance."""
    earlier = range(len(levels) - 1)
    best = sorted(earlier, key=lambda at: levels[at].mean, reverse=name.better == "higher")
    for at in best:
        found = _change(name, runs, (levels[at], levels[at + 1], levels[-1]), parts[at], parts[-1])
        if found.worse and abs(found.difference) >= least_change and found.p <= chance:
            return found
    return None


def _changes(
    name: FigureName, runs: Sequence[_Past], levels: Sequence[Level], parts: Sequence[list[float]]
) -> Iterator[Change]:
    for at in range(len(levels) - 1):
        after = levels[at + 1]
        yield _change(name, runs, (levels[at], after, after), parts[at], parts[at + 1])


def _change(
    name: FigureName,
    runs: Sequence[_Past],
    levels: tuple[Level, Level, Level],
    old_part: Sequence[float],
    new_part: Sequence[float],
) -> Change:
    """From one level to the last of the three; the second is what followed the first."""
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
