"""The runs of a folder as a history keeps them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from vflops.errors import FolderError, UsageError
from vflops.metrics.statistics import mean
from vflops.record.files.lock import is_locked
from vflops.results.check.checking import check
from vflops.results.figures import FigureName
from vflops.studies.compare.side import Facts, read_run
from vflops.studies.history.history_data import PastRun

_DEPTH = 4
"""The depth to which folders are searched."""


@dataclass(frozen=True)
class ReadPastRun:
    """What a history keeps of a run; its logs would fill the memory."""

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
    """The settings that define the measurement."""
    measured: Mapping[str, str]
    """Data and counting rules by workload."""
    fault: str | None
    """Why it did not finish; None if it did."""
    in_progress: bool
    rules_broken: tuple[str, ...]

    def as_data(self) -> PastRun:
        """Return what the history shows of it."""
        return PastRun(
            run=self.id,
            folder=self.folder,
            created_utc=self.created.isoformat(),
            rules_broken=self.rules_broken,
        )


def run_folders(folder: Path) -> list[Path]:
    """Return all run folders below ``folder``, sorted by name."""
    if not folder.is_dir():
        raise UsageError(
            f"{folder} is not a folder", hint="name the folder that holds your runs, e.g. runs"
        )
    runs = []
    for path, inside, files in os.walk(folder):
        at = Path(path)
        if "run.json" in files and at != folder:
            runs.append(at)
            inside.clear()
        elif len(at.relative_to(folder).parts) >= _DEPTH:
            inside.clear()
    if not runs:
        alone = (folder / "run.json").is_file()
        raise UsageError(
            f"{folder} is a single run; a history needs several"
            if alone
            else f"no run below {folder}",
            hint=f"name the folder that it is in: vflops history {folder.parent}"
            if alone
            else "start one: vflops run",
        )
    return sorted(runs)


def read_past_run(path: Path, below: str) -> ReadPastRun:
    """Read the run in ``path``, which is ``below`` the searched folder."""
    run = read_run(path)
    record, complete = run.record, run.score.complete
    return ReadPastRun(
        id=record.id,
        folder=below,
        created=moment(record.created_utc),
        kind=run.kind,
        workload=record.workload,
        profile=record.settings.profile,
        machine=run.machine,
        facts=run.facts,
        versions=record.versions,
        figures={name: mean([e.value for e in samples]) for name, samples in run.samples.items()},
        settings=run.measurement_settings,
        measured={
            **{f"data of {name}": text[:12] for name, text in run.data.items()},
            **{f"rules of {name}": text for name, text in run.rules.items()},
        },
        fault=None if complete else run.score.incomplete_reason or "it did not finish",
        in_progress=is_locked(run.contents.folder.lock),
        rules_broken=tuple(finding.rule for finding in check(run.contents).failures)
        if complete
        else (),
    )


def moment(text: str) -> datetime:
    """Return the time of an ISO 8601 text, in UTC unless it names a zone."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError as error:
        raise FolderError(f"{text!r} is not a time", hint="e.g. 2026-01-31") from error
    return time if time.tzinfo else time.replace(tzinfo=UTC)
