"""The run folder: created once, written by the jobs, read by all later steps.

runs/<utc>-<workload>-<short id>/
  run.json                         settings, versions, seed: written once, never changed
  system.json                      the system in nine layers
  nodes/<node>.json                a compute node of a scheduler: its layers and its ceilings
  links/<nodes>.json               the ceilings of communication between nodes
  graphs/<model>.json              operation graphs of the models that were counted or trained
  jobs/<k>/job.json                what job k trains; job 0 is the run itself and has no job.json
  jobs/<k>/<attempt>/events.jsonl  the log of the attempt, chained by hashes
  jobs/<k>/<attempt>/telemetry.jsonl  power, utilisation, memory, network, disk
  jobs/<k>/<attempt>/node-<n>.json    a node of the attempt; node n > 0 has telemetry-<n>.jsonl
  jobs/<k>/<attempt>/exhibit.npz      data of the workload for the report
  jobs/<k>/checkpoint/             the newest complete checkpoints; never part of a result
  score.json  findings.json  report.html   computed from the files above
  manifest.json                    the hash of every file, written at the end of the run
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from pydantic import ValidationError

import vflops
from vflops.config.launch import on_this_machine
from vflops.config.settings import Settings
from vflops.errors import FolderError, Hint, VflopsError
from vflops.record.files import atomic
from vflops.record.files.digest import file_digest
from vflops.record.files.document import Document, first_fault, read_json
from vflops.record.files.folder_listing import matching_files, subfolders
from vflops.record.files.lock import locked
from vflops.record.files.read_once import is_file
from vflops.record.formats.challenge import ChallengedRun
from vflops.record.formats.job import JobRecord
from vflops.record.formats.job_events import JobRearranged
from vflops.record.installed_package import PackageRecord, installed_package
from vflops.record.log.events import Event, EventWriter, Log, has_event, read_log
from vflops.record.own_runs import is_own, remember


class RunRecord(Document):
    """``run.json``: what was requested, by which software, and when.

    Its version is that of the whole run folder: a change of any file that an older release cannot
    read raises it, so that the older release refuses the folder before it reads that file.
    """

    schema_name: ClassVar[str] = "vflops.run"
    schema_version: ClassVar[int] = 3

    id: str
    workload: str
    created_utc: str
    settings: Settings
    versions: dict[str, str | None]
    """Versions of vflops and Python; those of libraries are in ``system.json``."""
    package: PackageRecord | None = None
    """The code of vflops where the run was started; None in runs of 0.2 and earlier."""
    challenge: ChallengedRun | None = None
    """The challenge from which all seeds follow; None if the user or the profile chose them."""
    this_machine: bool | None = None
    """Whether the launcher starts jobs on the machine of the command, instead of on nodes of a
    cluster; None in earlier runs."""

    @property
    def on_this_machine(self) -> bool:
        """Whether the jobs ran on the machine of the command."""
        if self.this_machine is None:
            return on_this_machine(self.settings.launch.on)
        return self.this_machine

    @classmethod
    def writer(cls, data: dict[str, Any]) -> str | None:
        """Return the version of vflops that wrote the file; None if ``data`` does not say."""
        versions = data.get("versions")
        version = versions.get("vflops") if isinstance(versions, dict) else None
        return version if re.fullmatch(r"\d+(\.\w+)*", str(version)) else None


@dataclass(frozen=True)
class State:
    """Whether a run is complete; if not, the reason."""

    complete: bool
    reason: str | None


@dataclass(frozen=True)
class History:
    """The logs of a run."""

    jobs: dict[int, tuple[Log, ...]]
    """The logs of each job, in the order of its attempts; job 0 is the run itself."""

    @cached_property
    def logs(self) -> tuple[Log, ...]:
        """All logs, in the order of jobs and attempts."""
        return tuple(log for logs in self.jobs.values() for log in logs)

    def events(self, kind: str, job: int | None = None) -> list[Event]:
        """Return all events of one kind, of one job or of all jobs."""
        if job is None:
            return list(self._by_kind.get(kind, ()))
        logs = self.jobs.get(job, ())
        return [event for log in logs for event in log.events if event.kind == kind]

    @cached_property
    def _by_kind(self) -> dict[str, list[Event]]:
        by_kind: dict[str, list[Event]] = {}
        for log in self.logs:
            for event in log.events:
                by_kind.setdefault(event.kind, []).append(event)
        return by_kind

    def ended(self, job: int) -> bool:
        """Whether the job's last attempt finished."""
        return _ended(self.jobs.get(job, ()))

    @property
    def state(self) -> State:
        """Whether the run is complete; if not, how its log ends."""
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
    """The folder of one run."""

    def __init__(self, path: Path, record: RunRecord) -> None:
        self.path = path
        self.record = record

    @classmethod
    def create(
        cls,
        parent: Path,
        workload: str,
        settings: Settings,
        challenge: ChallengedRun | None = None,
        *,
        this_machine: bool | None = None,
    ) -> RunFolder:
        """Create a new folder under ``parent`` and write its ``run.json``.

        ``this_machine`` says whether its launcher starts jobs on this machine; None if that follows
        from its name.
        """
        now = datetime.now(UTC)
        name = f"{now:%Y%m%dT%H%M%SZ}-{workload}-{os.urandom(3).hex()}"
        versions = {"vflops": vflops.__version__, "python": sys.version.split()[0]}
        record = RunRecord(
            id=name,
            workload=workload,
            created_utc=now.isoformat(timespec="seconds"),
            settings=settings,
            versions=dict(versions),
            package=installed_package(),
            challenge=challenge,
            this_machine=this_machine,
        )
        path = parent / name
        atomic.make_folder(path)
        try:
            record.write(path / "run.json")
        except (VflopsError, KeyboardInterrupt):
            with suppress(OSError):
                path.rmdir()
            raise
        folder = cls(path, record)
        remember(folder.anchor, f"run {name}")
        return folder

    @classmethod
    def open(cls, path: Path) -> RunFolder:
        """Open the run in ``path``, or raise ``FolderError`` if it is not a run."""
        try:
            path.stat()
        except FileNotFoundError:
            pass
        except OSError as error:  # a name that is too long, or a link to itself
            raise FolderError(f"cannot read {path}: {error.strerror or error}") from error
        is_run = is_file(path / "run.json")
        if is_file(path):
            raise FolderError(
                f"{path} is a file, not a run folder",
                hint=f"if it was made by `vflops archive`: vflops extract {path}",
            )
        if not is_run:
            newest = newest_own(path) if path.is_dir() else None
            raise FolderError(
                f"{path} is not a run folder: "
                + ("it has no run.json" if path.exists() else "it does not exist"),
                hint=f"the newest run in that folder is {newest}"
                if newest
                else "give a folder that `vflops run` or `vflops micro` made",
            )
        return cls(path, RunRecord.read(path / "run.json"))

    @cached_property
    def system_file(self) -> Path:
        """The path of the system description."""
        return self.path / "system.json"

    @cached_property
    def score_file(self) -> Path:
        """The path of the score."""
        return self.path / "score.json"

    @property
    def findings_file(self) -> Path:
        """The path of the findings of the check."""
        return self.path / "findings.json"

    @property
    def report_file(self) -> Path:
        """The path of the report."""
        return self.path / "report.html"

    @property
    def manifest_file(self) -> Path:
        """The path of the manifest, which has the hashes of all files."""
        return self.path / "manifest.json"

    @property
    def result_files(self) -> tuple[Path, ...]:
        """The files that are written when the run is complete."""
        return self.score_file, self.findings_file, self.report_file, self.manifest_file

    @property
    def graph_files(self) -> list[Path]:
        """The files of the recorded operation graphs, sorted by name."""
        return matching_files(self.path / "graphs", "*.json")

    def graph_file(self, model: str) -> Path:
        """Return the path of the graph of ``model``, a name or ``package.module:name``."""
        return self.path / "graphs" / f"{model.replace('/', '_').replace(':', '.')}.json"

    def in_use(self) -> AbstractContextManager[None]:
        """Lock the run for this process during a block; raise ``InUse`` if another process holds
        it."""
        return locked(self.lock, self.path)

    @property
    def lock(self) -> Path:
        """The lock file, which the process that executes the run holds."""
        return self.path / ".lock"

    def job_file(self, job: int) -> Path:
        """Return the path of a job's ``job.json``."""
        return self.path / "jobs" / str(job) / "job.json"

    def attempt_folder(self, job: int, attempt: int) -> Path:
        """Return the folder of an attempt at a job."""
        return self.path / "jobs" / str(job) / str(attempt)

    def next_attempt(self, job: int) -> int:
        """Return the number of the job's next attempt."""
        attempts = _numbered_folders(self.path / "jobs" / str(job))
        return int(attempts[-1].name) + 1 if attempts else 0

    def effective_job(self, job: int) -> JobRecord:
        """Return the description that the job's next attempt runs with.

        ``job.json`` describes the first attempt. If the run was resumed with changed settings, the
        log of the run (job 0) has a ``job-rearranged`` event, which ``pass_on_changes`` copies to
        the job's folder: agents and ranks do not read the log of the run, which grows with the
        number of jobs.
        """
        record = JobRecord.read(self.job_file(job))
        path = self._change_file(job)
        if not path.is_file():
            return record
        try:
            change = JobRearranged.model_validate(read_json(path))
        except ValidationError as error:
            raise FolderError(
                f"{path} is invalid: {first_fault(error)}",
                hint=Hint("write it again", f"vflops resume {self.path}"),
            ) from error
        return record.model_copy(update={"ranks": change.ranks, "settings": change.settings})

    def pass_on_changes(self) -> None:
        """Write the changed settings of jobs, as the log of the run has them, for their agents."""
        events = self.history(0).events("job-rearranged")
        changes = [event.payload(JobRearranged) for event in events]
        for change in {change.job: change for change in changes}.values():  # the newest of a job
            atomic.write_json(self._change_file(change.job), change.model_dump(mode="json"))

    def _change_file(self, job: int) -> Path:
        """Return the path of a job's changed settings; hidden, because the log is the evidence."""
        return self.path / "jobs" / str(job) / ".rearranged.json"

    def claim_attempt(self, job: int) -> int:
        """Create the folder of a new attempt and return its number, unique among concurrent
        calls."""
        while True:
            attempt = self.next_attempt(job)
            folder = self.attempt_folder(job, attempt)
            atomic.make_folder(folder.parent)
            try:
                folder.mkdir()
            except FileExistsError:
                continue
            except OSError as error:
                raise atomic.cannot_write(folder, error) from error
            return attempt

    def job_lock(self, job: int) -> Path:
        """Return the lock file of a job, which the process that runs the job holds."""
        return self.path / "jobs" / str(job) / ".lock"

    def start_attempt(self, job: int) -> EventWriter:
        """Start the log of a new attempt at ``job``."""
        return self.log(job, self.next_attempt(job))

    def log(self, job: int, attempt: int) -> EventWriter:
        """Start the log of an attempt, chained to the log of the previous attempt."""
        logs = self._log_files(self.path / "jobs" / str(job))
        anchor = file_hash(logs[-1]) if logs else self.anchor
        return EventWriter(self.attempt_folder(job, attempt) / "events.jsonl", anchor)

    @cached_property
    def anchor(self) -> str:
        """The hash of ``run.json``, to which the log of a job's first attempt is chained.

        The log of a later attempt is chained to the whole log of the previous attempt.
        """
        return file_hash(self.path / "run.json")

    def history(self, *jobs: int, event_type: type[Event] = Event) -> History:
        """Read the logs of ``jobs``, or of all jobs if none are given."""
        folders = [self.path / "jobs" / str(job) for job in jobs] or _numbered_folders(
            self.path / "jobs"
        )
        return History(
            {int(folder.name): self._read_logs(folder, event_type) for folder in folders}
        )

    def job_history(self, job: int) -> tuple[Log, ...]:
        """Read the logs of one job, in the order of its attempts."""
        return self._read_logs(self.path / "jobs" / str(job))

    def logged_attempts(self, job: int) -> list[Path]:
        """Return the folders of a job's attempts that have a log, in order."""
        return [log.parent for log in self._log_files(self.path / "jobs" / str(job))]

    def ended(self, job: int) -> bool:
        """Whether a job's last attempt finished; only the last log of this job is read."""
        logs = self._log_files(self.path / "jobs" / str(job))
        return bool(logs) and has_event(logs[-1], "end")

    def _read_logs(self, job: Path, event_type: type[Event] = Event) -> tuple[Log, ...]:
        paths = self._log_files(job)
        anchors = [self.anchor, *(file_hash(path) for path in paths[:-1])]
        return tuple(read_log(*log, event_type) for log in zip(paths, anchors, strict=False))

    @staticmethod
    def _log_files(job: Path) -> list[Path]:
        logs = (attempt / "events.jsonl" for attempt in _numbered_folders(job))
        return [log for log in logs if is_file(log)]


def _ended(logs: Sequence[Log]) -> bool:
    return bool(logs) and any(event.kind == "end" for event in logs[-1].events)


def file_hash(path: Path) -> str:
    """Return the SHA-256 of a file of the run folder."""
    return file_digest(path).sha256


def _numbered_folders(folder: Path) -> list[Path]:
    """Return the subfolders whose names are numbers, in numerical order."""
    paths = subfolders(folder)
    numbered = (path for path in paths if path.name.isascii() and path.name.isdigit())
    return sorted(numbered, key=lambda path: int(path.name))


def newest_first(parent: Path) -> list[Path]:
    """Return the run folders directly under ``parent``, the newest first."""
    return sorted((path.parent for path in parent.glob("*/run.json")), reverse=True)


def latest(parent: Path) -> Path | None:
    """Return the newest run folder directly under ``parent``, or None."""
    return next(iter(newest_first(parent)), None)


def newest_own(parent: Path) -> Path | None:
    """Return the newest run directly under ``parent`` that this user started here, or None."""
    return next((path for path in newest_first(parent) if is_own(path)), None)
