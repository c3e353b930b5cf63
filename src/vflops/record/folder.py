"""The run folder: created once, appended to by its jobs, read by everything after.

runs/<utc>-<workload>-<short id>/
  run.json                         settings, versions, seed: written once, never changed
  system.json                      the system in nine layers
  graphs/<model>.json              operation graphs of what was counted or ran
  jobs/<k>/job.json                what job k trains; job 0 is the run itself and has none
  jobs/<k>/<attempt>/events.jsonl  what happened, chained
  jobs/<k>/<attempt>/telemetry.jsonl  power, utilisation, memory, network, disk
  jobs/<k>/<attempt>/node-<n>.json    a node that it ran on; n > 0 has a telemetry-<n>.jsonl
  jobs/<k>/<attempt>/exhibit.npz      what a workload leaves to be shown
  jobs/<k>/checkpoint/             newest complete ones; never part of a result
  score.json  findings.json  report.html   pure functions of the above
  manifest.json                    the hash of every file, written when the run is concluded
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import ClassVar

import vflops
from vflops.config.settings import Settings
from vflops.errors import FolderError, VflopsError
from vflops.record.files import atomic
from vflops.record.files.digest import file_digest
from vflops.record.files.document import Document
from vflops.record.files.folder_listing import matching_files, subfolders
from vflops.record.files.lock import locked
from vflops.record.formats.job import JobRecord
from vflops.record.formats.job_events import JobRearranged
from vflops.record.log.events import Event, EventWriter, Log, read_log


class RunRecord(Document):
    """``run.json``: what was asked for, by which software, when."""

    schema_name: ClassVar[str] = "vflops.run"

    id: str
    workload: str
    created_utc: str
    settings: Settings
    versions: dict[str, str | None]
    """Of vflops and Python; the libraries are in ``system.json``."""


@dataclass(frozen=True)
class State:
    """Whether a run ended, and where it stopped if it did not."""

    complete: bool
    reason: str | None


@dataclass(frozen=True)
class History:
    """What a run has written down so far."""

    jobs: dict[int, tuple[Log, ...]]
    """The logs of each job, by attempt; job 0 is the run itself."""

    @property
    def logs(self) -> tuple[Log, ...]:
        """All logs, by job and attempt."""
        return tuple(log for logs in self.jobs.values() for log in logs)

    def events(self, kind: str, job: int | None = None) -> list[Event]:
        """All events of one kind, of one job or of all, over the attempts."""
        logs = self.logs if job is None else self.jobs.get(job, ())
        return [event for log in logs for event in log.events if event.kind == kind]

    def ended(self, job: int) -> bool:
        """Whether the job's last attempt came to its end."""
        return _ended(self.jobs.get(job, ()))

    @property
    def state(self) -> State:
        """Whether the run is complete; if not, what its log ends with."""
        if not self.jobs.get(0):
            return State(False, "no job was started")
        if self.ended(0):
            return State(True, None)
        last = self.jobs[0][-1]
        if not last.events:
            return State(False, "its last attempt has no event")
        end = last.events[-1]
        if end.kind == "failed":
            return State(False, f"it failed: {end.data.get('message')}")
        if end.kind == "stopped":
            return State(False, f"it was {end.data.get('message')}")
        return State(False, f"it stopped after {end.kind!r} at {end.utc}")


class RunFolder:
    """A folder that holds one run."""

    def __init__(self, path: Path, record: RunRecord) -> None:
        self.path = path
        self.record = record

    @classmethod
    def create(cls, parent: Path, workload: str, settings: Settings) -> RunFolder:
        """A new folder under ``parent`` with its ``run.json``."""
        now = datetime.now(UTC)
        name = f"{now:%Y%m%dT%H%M%SZ}-{workload}-{os.urandom(3).hex()}"
        versions = {"vflops": vflops.__version__, "python": sys.version.split()[0]}
        record = RunRecord(
            id=name,
            workload=workload,
            created_utc=now.isoformat(timespec="seconds"),
            settings=settings,
            versions=dict(versions),
        )
        path = parent / name
        atomic.make_folder(path)
        try:
            record.write(path / "run.json")
        except VflopsError:
            with suppress(OSError):
                path.rmdir()  # nothing half-made stays
            raise
        return cls(path, record)

    @classmethod
    def open(cls, path: Path) -> RunFolder:
        """The run in ``path``, or an error that says why it is none."""
        try:
            is_run = (path / "run.json").is_file()
        except OSError as error:
            raise FolderError(f"cannot read {path}: {error.strerror or error}") from error
        if path.is_file():
            raise FolderError(
                f"{path} is a file, not a run folder",
                hint=f"if `vflops archive` made it: vflops extract {path}",
            )
        if not is_run:
            newest = latest(path) if path.is_dir() else None
            raise FolderError(
                f"{path} is not a run folder: "
                + ("it has no run.json" if path.exists() else "it does not exist"),
                hint=f"the newest run inside it is {newest}"
                if newest
                else "give a folder that `vflops run` or `vflops micro` made",
            )
        return cls(path, RunRecord.read(path / "run.json"))

    @property
    def system_file(self) -> Path:
        """Where the system is described."""
        return self.path / "system.json"

    @property
    def score_file(self) -> Path:
        """Where the score goes."""
        return self.path / "score.json"

    @property
    def findings_file(self) -> Path:
        """Where the findings of the check go."""
        return self.path / "findings.json"

    @property
    def report_file(self) -> Path:
        """Where the report goes."""
        return self.path / "report.html"

    @property
    def manifest_file(self) -> Path:
        """Where the hashes of all files go."""
        return self.path / "manifest.json"

    @property
    def conclusions(self) -> tuple[Path, ...]:
        """The files that are written when the record is whole."""
        return self.score_file, self.findings_file, self.report_file, self.manifest_file

    @property
    def graph_files(self) -> list[Path]:
        """The recorded operation graphs, by name."""
        return matching_files(self.path / "graphs", "*.json")

    def graph_file(self, model: str) -> Path:
        """Where the graph of ``model`` is kept; a user's ``package.module:name`` has no slash."""
        return self.path / "graphs" / f"{model.replace('/', '_').replace(':', '.')}.json"

    def in_use(self) -> AbstractContextManager[None]:
        """Hold the run for this process; another that asks while it lives is refused."""
        return locked(self.lock, self.path)

    @property
    def lock(self) -> Path:
        """Held by the process that runs it, as long as it lives."""
        return self.path / ".lock"

    def job_file(self, job: int) -> Path:
        """Where a training job is described."""
        return self.path / "jobs" / str(job) / "job.json"

    def attempt_folder(self, job: int, attempt: int) -> Path:
        """Where an attempt at a job keeps what it writes."""
        return self.path / "jobs" / str(job) / str(attempt)

    def next_attempt(self, job: int) -> int:
        """The number of an attempt that was not made yet."""
        made = _numbered(self.path / "jobs" / str(job))
        return int(made[-1].name) + 1 if made else 0

    def effective_job(self, job: int) -> JobRecord:
        """Return the description that the job's next attempt runs with.

        ``job.json`` describes the first attempt; a run that was resumed with changed settings has
        a ``job-rearranged`` event in its own log, which is the only log that is read.
        """
        record = JobRecord.read(self.job_file(job))
        events = self.history(0).events("job-rearranged")
        changes = [event.payload(JobRearranged) for event in events]
        newest = next((change for change in reversed(changes) if change.job == job), None)
        if newest is None:
            return record
        return record.model_copy(update={"ranks": newest.ranks, "settings": newest.settings})

    def claim_attempt(self, job: int) -> int:
        """A new attempt at a job with a folder that nobody else has, whoever asks at once."""
        while True:
            attempt = self.next_attempt(job)
            place = self.attempt_folder(job, attempt)
            atomic.make_folder(place.parent)
            try:
                place.mkdir()
            except FileExistsError:
                continue
            except OSError as error:
                raise atomic.cannot_write(place, error) from error
            return attempt

    def job_lock(self, job: int) -> Path:
        """Held by the process that runs a job, as long as it lives."""
        return self.path / "jobs" / str(job) / ".lock"

    def start_attempt(self, job: int) -> EventWriter:
        """The log of a new attempt at ``job``."""
        return self.log(job, self.next_attempt(job))

    def log(self, job: int, attempt: int) -> EventWriter:
        """The new log of an attempt, chained to the one before it."""
        logs = self._logs_of(self.path / "jobs" / str(job))
        anchor = file_hash(logs[-1]) if logs else self.anchor
        return EventWriter(self.attempt_folder(job, attempt) / "events.jsonl", anchor)

    @cached_property
    def anchor(self) -> str:
        """What the first attempt's log is chained to: the hash of ``run.json``.

        A later attempt's is chained to the whole log of the attempt before it.
        """
        return file_hash(self.path / "run.json")

    def history(self, *jobs: int) -> History:
        """Read the logs of ``jobs``, or of all jobs where none is named."""
        folders = [self.path / "jobs" / str(job) for job in jobs] or _numbered(self.path / "jobs")
        return History({int(folder.name): self._read_logs(folder) for folder in folders})

    def job_history(self, job: int) -> tuple[Log, ...]:
        """The logs of one job, by attempt."""
        return self._read_logs(self.path / "jobs" / str(job))

    def logged_attempts(self, job: int) -> list[Path]:
        """The folders of the attempts at a job that have a log, in the order of its history."""
        return [log.parent for log in self._logs_of(self.path / "jobs" / str(job))]

    def ended(self, job: int) -> bool:
        """Whether a job's last attempt came to its end; only its own logs are read."""
        return _ended(self.job_history(job))

    def _read_logs(self, job: Path) -> tuple[Log, ...]:
        paths = self._logs_of(job)
        anchors = [self.anchor, *(file_hash(path) for path in paths[:-1])]
        return tuple(read_log(*each) for each in zip(paths, anchors, strict=False))

    @staticmethod
    def _logs_of(job: Path) -> list[Path]:
        logs = (attempt / "events.jsonl" for attempt in _numbered(job))
        return [log for log in logs if log.is_file()]


def _ended(logs: Sequence[Log]) -> bool:
    return bool(logs) and any(event.kind == "end" for event in logs[-1].events)


def file_hash(path: Path) -> str:
    """The SHA-256 of a file of the run folder."""
    return file_digest(path).sha256


def _numbered(folder: Path) -> list[Path]:
    """The folders inside whose names are numbers, in that order; others are not ours."""
    found = subfolders(folder)
    named = (path for path in found if path.name.isascii() and path.name.isdigit())
    return sorted(named, key=lambda path: int(path.name))


def latest(parent: Path) -> Path | None:
    """The newest run folder directly under ``parent``."""
    runs = sorted(path.parent for path in parent.glob("*/run.json"))
    return runs[-1] if runs else None
