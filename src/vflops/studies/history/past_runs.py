"""Finds the runs below a folder, and reads the summary that a history needs of each."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from vflops.errors import FolderError, Hint, UsageError
from vflops.metrics.statistics import mean
from vflops.record.files.lock import is_locked
from vflops.results.check.checking import check
from vflops.results.figures import FigureName
from vflops.studies.compare.run_view import Facts, read_run_view
from vflops.studies.history.history_data import PastRun

_DEPTH = 4
"""How many levels of folders are searched."""


@dataclass(frozen=True)
class RunSummary:
    """What a history needs of a run; keeping all logs would take too much memory."""

    id: str
    folder: str
    created: datetime
    group_key: str
    """Equal for runs of the same measurement on the same kind of machine."""
    workload: str
    profile: str
    machine: str
    facts: Facts
    versions: Mapping[str, str | None]
    figures: dict[FigureName, float]
    settings: Mapping[str, str]
    """The settings that define the measurement."""
    data_and_rules: Mapping[str, str]
    """The data and the counting rules of each workload."""
    fault: str | None
    """Why the run did not finish; None if it did."""
    rehearsal: bool
    """Whether it rehearsed a layout, so that its speeds are no measurement."""
    in_progress: bool
    rules_broken: tuple[str, ...]

    def as_data(self) -> PastRun:
        """Return the run as the history lists it."""
        return PastRun(
            run=self.id,
            folder=self.folder,
            created_utc=self.created.isoformat(),
            rules_broken=self.rules_broken,
        )


def run_folders(folder: Path) -> list[Path]:
    """Return all run folders below ``folder``, sorted by path."""
    if not folder.is_dir():
        raise UsageError(
            f"{folder} is not a folder", hint="name the folder that holds your runs, e.g. runs"
        )
    runs = []
    for name, subfolders, files in os.walk(folder):
        path = Path(name)
        if "run.json" in files and path != folder:
            runs.append(path)
            subfolders.clear()
        elif len(path.relative_to(folder).parts) >= _DEPTH:
            subfolders.clear()
    if not runs:
        if (folder / "run.json").is_file():
            raise UsageError(
                f"{folder} is a single run; a history needs several",
                hint=Hint(
                    "name the folder that contains the run", f"vflops history {folder.parent}"
                ),
            )
        raise UsageError(f"there is no run below {folder}", hint=Hint("start one", "vflops run"))
    return sorted(runs)


def read_run_summary(path: Path, relative_path: str) -> RunSummary:
    """Read the run in ``path``; ``relative_path`` is its path below the searched folder."""
    run = read_run_view(path)
    record, complete = run.record, run.score.complete
    return RunSummary(
        id=record.id,
        folder=relative_path,
        created=parse_time(record.created_utc),
        group_key=run.group_key,
        workload=record.workload,
        profile=record.settings.profile,
        machine=run.machine,
        facts=run.facts,
        versions=record.versions,
        figures={name: mean([s.value for s in samples]) for name, samples in run.samples.items()},
        settings=run.measurement_settings,
        data_and_rules={
            **{f"data of {name}": text[:12] for name, text in run.data.items()},
            **{f"rules of {name}": text for name, text in run.rules.items()},
        },
        fault=None if complete else run.score.incomplete_reason or "it did not finish",
        rehearsal=run.score.rehearsal,
        in_progress=is_locked(run.contents.folder.lock),
        rules_broken=tuple(finding.rule for finding in check(run.contents).failures)
        if complete
        else (),
    )


def parse_time(text: str) -> datetime:
    """Parse an ISO 8601 time, which is in UTC unless it names a time zone."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError as error:
        raise FolderError(f"{text!r} is not a time", hint="e.g. 2026-01-31") from error
    return time if time.tzinfo else time.replace(tzinfo=UTC)
