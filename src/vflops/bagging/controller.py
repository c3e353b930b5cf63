"""The job controller: starts the jobs of an ensemble, sees them through, tries again what dies.

The truth about a job is its own log: it has ended when that says so. A launcher only says whether
somebody works on it. So a controller can die and another take over, and nothing is started twice.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from vflops.errors import Interrupted
from vflops.launch.jobs import Launcher
from vflops.record.events import EventWriter
from vflops.record.folder import RunFolder
from vflops.record.tail import Tail
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
    reason: str | None = None
    """Why the last attempt died."""
    last: tuple[str, dict[str, Any]] | None = None
    """The newest event of the newest attempt."""

    def take(self, kind: str, data: dict[str, Any]) -> None:
        """Take in an event of the newest attempt."""
        self.last = kind, data
        if kind in ("progress", "evaluation", "finished"):
            self.epoch = float(data["epoch"])
            self.samples = int(data["samples"])
        if kind == "evaluation":
            self.quality = float(data["quality"])
        if kind == "end":
            self.state = "ended"

    def why(self) -> str:
        """What is known of an attempt that came to no end."""
        if self.last is None:
            return "it died before it wrote anything"
        kind, data = self.last
        if kind in ("failed", "stopped"):
            return str(data.get("message"))
        return f"it died after {kind!r}"


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
        self._tails: dict[int, Tail] = {}

    def run(self) -> list[JobStanding]:
        """Until every job has ended or was given up; how each stands then."""
        try:
            self._take_over()
            while not self._over():
                self._look()
                self._start()
                self._show(list(self._jobs.values()))
                time.sleep(_LOOK_S)
            self._wait()  # an agent writes on for a moment after the job's last event
        except KeyboardInterrupt:
            self._stop()
            raise Interrupted("stopped; its jobs were asked to keep checkpoints") from None
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
        waiting = [job for job, standing in self._jobs.items() if standing.state == "waiting"]
        for job in self._launcher.start(waiting) if waiting else ():
            standing = self._jobs[job]
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
            standing.where = self._launcher.where(job)
            self._read(job)  # after the look: what ended before it has said so
            if job not in alive and standing.state == "running":
                self._gone(standing)

    def _read(self, job: int) -> None:
        """Take in what the newest attempt has written since."""
        made = self._folder.next_attempt(job)
        path = self._folder.attempt_folder(job, made - 1) / "events.jsonl"
        if made and (job not in self._tails or self._tails[job].path != path):
            standing = self._jobs[job]
            standing.last = None
            self._tails[job] = Tail(path, standing.take)
        if job in self._tails:
            self._tails[job].read()

    def _gone(self, standing: JobStanding) -> None:
        job = standing.record.job
        known = (standing.why(), self._launcher.ending(job))
        standing.reason = "; ".join(each for each in known if each)
        lost = JobLost(job=job, reason=standing.reason, where=standing.where)
        self._events.write("job-lost", **lost.model_dump(mode="json"))
        self._launcher.lost(job)
        if standing.attempts < self._attempts:
            standing.state = "waiting"
            return
        standing.state = "given up"
        given_up = JobGivenUp(job=job, attempts=standing.attempts, reason=standing.reason)
        self._events.write("job-given-up", **given_up.model_dump(mode="json"))

    def _stop(self) -> None:
        self._launcher.stop()
        self._wait()

    def _wait(self) -> None:
        """Until nobody works on a job any more, but not for ever."""
        end_s = time.monotonic() + _PATIENCE_S
        while self._launcher.alive() and time.monotonic() < end_s:
            time.sleep(_LOOK_S)
