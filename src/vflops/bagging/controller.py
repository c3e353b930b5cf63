"""The job controller: starts the jobs of an ensemble, sees them through, tries again what dies.

The truth about a job is its own log: it has ended when that says so. A launcher only says whether
somebody works on it. So a controller can die and another take over, and nothing is started twice.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from vflops.errors import Interrupted
from vflops.launch.jobs import Launcher
from vflops.record.events import EventWriter, Log
from vflops.record.folder import RunFolder
from vflops.record.training import JobBegun, JobGivenUp, JobLost, JobRecord

_LOOK_S = 0.25
_PATIENCE_S = 90.0
"""How long jobs may take to end when they are asked to."""


@dataclass
class JobStanding:
    """Where one job stands, as the table shows it."""

    record: JobRecord
    state: str = "waiting"
    """waiting, running, ended, given up."""
    where: str = ""
    attempts: int = 0
    epoch: float = 0.0
    quality: float | None = None
    samples: int = 0
    work_s: float = 0.0
    reason: str | None = field(default=None)
    """Why the last attempt died."""


class Controller:
    """Sees the jobs of a run to their end."""

    def __init__(
        self,
        folder: RunFolder,
        events: EventWriter,
        launcher: Launcher,
        records: Sequence[JobRecord],
        *,
        attempts: int,
        show: Callable[[Sequence[JobStanding]], None] = lambda jobs: None,
    ) -> None:
        self._folder, self._events, self._launcher = folder, events, launcher
        self._attempts, self._show = attempts, show
        self._jobs = {record.job: JobStanding(record) for record in records}

    def run(self) -> list[JobStanding]:
        """Until every job has ended or was given up; how each stands then."""
        try:
            self._take_over()
            while not self._over():
                self._look()
                self._start()
                self._show(list(self._jobs.values()))
                time.sleep(_LOOK_S)
        except KeyboardInterrupt:
            self._stop()
            raise Interrupted("stopped by the user; the jobs have kept checkpoints") from None
        return list(self._jobs.values())

    def _take_over(self) -> None:
        """Find what an earlier controller left: jobs that ended, and jobs that go on."""
        history = self._folder.history()
        alive = self._launcher.alive()
        for job, standing in self._jobs.items():
            if history.ended(job):
                standing.state = "ended"
            elif job in alive:
                standing.state, standing.where = "running", self._launcher.where(job)
                standing.attempts = 1

    def _over(self) -> bool:
        return all(each.state in ("ended", "given up") for each in self._jobs.values())

    def _start(self) -> None:
        for job, standing in self._jobs.items():
            if standing.state == "waiting" and self._launcher.start(job):
                standing.state, standing.where = "running", self._launcher.where(job)
                standing.attempts += 1
                begun = JobBegun(
                    job=job,
                    launcher=self._launcher.name,
                    where=standing.where,
                    attempt=standing.attempts,
                )
                self._events.write("job-begun", **begun.model_dump(mode="json"))

    def _look(self) -> None:
        alive = self._launcher.alive()
        for job, standing in self._jobs.items():
            if standing.state != "running":
                continue
            logs = self._folder.job_history(job)
            _read(standing, logs)
            if job not in alive:
                # It may have ended between the two looks: its log is read after it was gone.
                self._gone(standing, self._folder.job_history(job))

    def _gone(self, standing: JobStanding, logs: Sequence[Log]) -> None:
        _read(standing, logs)
        if logs and any(event.kind == "end" for event in logs[-1].events):
            standing.state = "ended"
            return
        standing.reason = _reason(logs)
        job = standing.record.job
        self._events.write(
            "job-lost",
            **JobLost(job=job, reason=standing.reason, where=standing.where).model_dump(
                mode="json"
            ),
        )
        if standing.attempts < self._attempts:
            standing.state = "waiting"
            return
        standing.state = "given up"
        given_up = JobGivenUp(job=job, attempts=standing.attempts, reason=standing.reason)
        self._events.write("job-given-up", **given_up.model_dump(mode="json"))

    def _stop(self) -> None:
        self._launcher.stop()
        end_s = time.monotonic() + _PATIENCE_S
        while self._launcher.alive() and time.monotonic() < end_s:
            time.sleep(_LOOK_S)


def _read(standing: JobStanding, logs: Sequence[Log]) -> None:
    """What the newest attempt has written down."""
    for event in logs[-1].events if logs else ():
        if event.kind in ("progress", "evaluation", "finished"):
            standing.epoch = float(event.data["epoch"])
            standing.samples = int(event.data["samples"])
        if event.kind == "evaluation":
            standing.quality = float(event.data["quality"])


def _reason(logs: Sequence[Log]) -> str:
    events = logs[-1].events if logs else ()
    if not events:
        return "it died before it wrote anything"
    last = events[-1]
    if last.kind in ("failed", "stopped"):
        return str(last.data.get("message"))
    return f"it died after {last.kind!r}"
