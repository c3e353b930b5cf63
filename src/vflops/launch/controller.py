"""The job controller: starts the jobs of an ensemble, sees them through, tries again what dies.

The truth about a job is its own log: it has ended when that says so. A launcher only says whether
somebody works on it. So a controller can die and another take over, and nothing is started twice.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from vflops.errors import Interrupted, RunFailed
from vflops.launch.interface import ASKED, Launcher
from vflops.launch.job_history import EXCUSING_EVENT, LEFT, excused, pasts
from vflops.record.folder import RunFolder
from vflops.record.formats.job import WORK_PHASES, JobBegun, JobGivenUp, JobLost, JobRecord
from vflops.record.log.events import EventWriter
from vflops.record.log.tail import Tail

_LOOK_S, _LOOK_A_JOB_S, _LOOK_MOST_S = 0.25, 0.001, 5.0
"""The pause between two looks grows with the jobs: each is a few files to look at."""
_PATIENCE_S = 90.0
"""How long jobs may take to end when they are asked to."""
_LONGEST_PAUSE_S = 60.0
_CHECK_S = 20.0
"""How often it is asked whether a job that shows nothing can show anything."""


class Leave(KeyboardInterrupt):
    """Raised where a person wants to go and have the jobs run on."""


class JobObserver(Protocol):
    """What a workload makes of the events of one of its jobs while it runs."""

    def take(self, kind: str, data: dict[str, Any]) -> None:
        """Take in an event of the job's newest attempt."""


def no_observer(record: JobRecord) -> JobObserver | None:
    """Return None: most jobs are shown by their epochs and qualities alone."""
    return None


@dataclass
class JobProgress:
    """Where one job stands, as the table shows it."""

    record: JobRecord
    state: str = "waiting"
    """waiting, running, ended, given up."""
    where: str = ""
    attempts: int = 0
    epoch: float = 0.0
    quality: float | None = None
    loss: float | None = None
    """At the last note of progress."""
    samples: int = 0
    work_s: float = 0.0
    """Of the newest attempt: training, waiting for data, checkpointing."""
    first_sample: int = 0
    """Where the newest attempt went on from."""
    ops_per_sample: int | None = None
    reason: str | None = None
    """Why the last attempt died."""
    again_s: float = 0.0
    """When it may be tried again, by this process's clock."""
    newest: int = -1
    """The number of the newest attempt that was seen; -1: none."""
    awaited: bool = False
    """Whether an attempt was begun that has no folder yet."""
    last: tuple[str, dict[str, Any]] | None = None
    """The newest event of the newest attempt."""
    observer: JobObserver | None = None
    """What the workload makes of the job's events, where it has a view of its own."""
    excused: bool = False
    """Whether the newest attempt ended with an event that excuses it (see ``job_history``)."""

    def take(self, kind: str, data: dict[str, Any]) -> None:
        """Take in an event of the newest attempt."""
        self.last = kind, data
        self.excused = self.excused if kind == "failed" else kind == EXCUSING_EVENT
        if self.observer is not None:
            self.observer.take(kind, data)
        if kind in ("progress", "evaluation", "finished"):
            self.epoch = float(data["epoch"])
            self.samples = int(data["samples"])
            self.work_s = sum(data["phases"].get(phase, 0.0) for phase in WORK_PHASES)
        if kind == "job":
            self.first_sample, self.work_s = 0, 0.0
        if kind == "resumed":
            self.first_sample = int(data["samples"])
        if kind == "evaluation":
            self.quality = float(data["quality"])
        if data.get("loss") is not None:
            self.loss = float(data["loss"])
        if kind == "end":
            self.state = "ended"

    @property
    def shown_state(self) -> str:
        """What was handed in and has written nothing yet waits: for nodes, or to be started."""
        return "waiting" if self.state == "running" and self.awaited else self.state

    @property
    def over(self) -> bool:
        """Whether nothing of it is left to do."""
        return self.state in ("ended", "given up")

    @property
    def flops(self) -> float | None:
        """Mean of the newest attempt; None where it has done nothing yet, or is not counted."""
        if self.ops_per_sample is None or not self.work_s:
            return None
        return self.ops_per_sample * (self.samples - self.first_sample) / self.work_s

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
        ops_per_sample: int | None = None,
        observe: Callable[[JobRecord], JobObserver | None] = no_observer,
        show: Callable[[Sequence[JobProgress]], None] = lambda jobs: None,
    ) -> None:
        self._folder, self._events, self._launcher = folder, events, launcher
        self._attempts, self._show = attempts, show
        self._jobs = {
            record.job: JobProgress(record, ops_per_sample=ops_per_sample, observer=observe(record))
            for record in records
        }
        self._tails: dict[int, Tail] = {}
        self._checked_s = 0.0

    def run(self) -> list[JobProgress]:
        """Until every job has ended or was given up; how each stands then."""
        try:
            self._take_over()
            while not self._over():
                self._look()
                self._start()
                self._show(list(self._jobs.values()))
                time.sleep(self._pause_s)
            self._wait()  # an agent writes on for a moment after the job's last event
            if self._launcher.alive():  # copies that a scheduler would start when all is over
                self._launcher.kill()
        except Leave:
            raise Interrupted(
                LEFT,
                hint=f"pick them up: vflops attach {self._folder.path}",
            ) from None
        except KeyboardInterrupt:
            self._stop()
            raise Interrupted("stopped; its jobs were asked to keep checkpoints") from None
        return list(self._jobs.values())

    @property
    def _pause_s(self) -> float:
        return min(_LOOK_S + _LOOK_A_JOB_S * len(self._jobs), _LOOK_MOST_S)

    def _take_over(self) -> None:
        """Find what earlier controllers left: jobs that ended, that go on, that died meanwhile."""
        history, past = self._folder.history(), pasts(self._folder)
        alive = self._launcher.alive()
        for job, standing in self._jobs.items():
            before, made = past[job], self._folder.next_attempt(job)
            died = history.jobs.get(job, ())[: -1 if before.running else None]
            standing.attempts = max(before.losses - sum(map(excused, died)), 0)
            begun = before.begun
            if history.ended(job):
                standing.state = "ended"
            elif before.given_up is not None:
                standing.state, standing.reason = "given up", before.given_up
            elif before.running or job in alive or made > begun:
                # Of one that died since, the next look says so.
                standing.state, standing.where = "running", self._launcher.where(job)
                standing.attempts += before.running
                if not before.running:  # it was handed in, and the controller died
                    self._begun(standing)
                    begun += 1
                standing.awaited = begun > made
                standing.newest = min(begun, made) - 1
                self._follow(standing)
            else:
                standing.newest = made - 1

    def _over(self) -> bool:
        return all(each.over for each in self._jobs.values())

    def _start(self) -> None:
        now_s = time.monotonic()
        for job, tail in self._tails.items():
            if self._jobs[job].state == "waiting":  # another agent may be at it, and end it
                tail.read()
        waiting = [each for each in self._jobs.values() if each.state == "waiting"]
        due = [each for each in waiting if each.again_s <= now_s]
        for each in waiting:
            left_s = each.again_s - now_s
            each.where = f"again in {left_s:.0f} s" if left_s > 0 else ""
        if not due or (self._launcher.together and len(due) < len(waiting)):
            return
        tries = {each.record.job: self._attempts - each.attempts for each in due}
        for job in self._launcher.start(tries):
            self._begun(self._jobs[job])
            self._jobs[job].awaited, self._jobs[job].last = True, None
            self._jobs[job].excused = False
            self._tails.pop(job, None)

    def _begun(self, standing: JobProgress) -> None:
        standing.state, standing.where = "running", self._launcher.where(standing.record.job)
        standing.attempts += 1
        begun = JobBegun(
            job=standing.record.job,
            launcher=self._launcher.name,
            where=standing.where,
            attempt=standing.attempts,
        )
        self._events.write("job-begun", **begun.model_dump(mode="json"))

    def _look(self) -> None:
        alive = self._launcher.alive()
        check = time.monotonic() - self._checked_s >= _CHECK_S
        if check:
            self._checked_s = time.monotonic()
        for job, standing in self._jobs.items():
            if standing.state != "running":
                continue
            standing.where = self._launcher.where(job)
            self._read(standing)  # after the look: what ended before it has said so
            if standing.awaited and (check or job not in alive):
                self._refuse_blind(job)
            if job not in alive and standing.state == "running":
                self._gone(standing)

    def _read(self, standing: JobProgress) -> None:
        """Take in what was written since, also by attempts that the launcher itself began."""
        job = standing.record.job
        if job in self._tails:
            self._tails[job].read()
        for attempt in range(standing.newest + 1, self._folder.next_attempt(job)):
            if standing.state == "ended":
                return
            if not standing.awaited:
                self._lost(standing)
                self._begun(standing)
            standing.awaited, standing.newest = False, attempt
            self._follow(standing)

    def _follow(self, standing: JobProgress) -> None:
        """Read the log of the newest attempt."""
        if standing.newest >= 0:
            job = standing.record.job
            path = self._folder.attempt_folder(job, standing.newest) / "events.jsonl"
            standing.last, standing.excused = None, False
            self._tails[job] = Tail(path, standing.take)
            self._tails[job].read()

    def _refuse_blind(self, job: int) -> None:
        """End the run where its first job shows that the nodes have another folder."""
        why = self._launcher.unseen(job)
        if why and not any(self._folder.next_attempt(other) for other in self._jobs):
            self._stop()
            raise RunFailed(
                f"{self._folder.path} is not seen from the nodes: {why}",
                hint="runs must be on a file system that all nodes share: name one with --out",
            )

    def _gone(self, standing: JobProgress) -> None:
        if self._launcher.elsewhere(standing.record.job):  # nothing died; look again later
            standing.attempts -= 1
            standing.state, standing.again_s = "waiting", time.monotonic() + _LONGEST_PAUSE_S
            self._follow(standing)
            return
        self._lost(standing)
        if standing.attempts < self._attempts:
            standing.state = "waiting"
            pause_s = min(2.0 ** (standing.attempts - 1), _LONGEST_PAUSE_S)
            standing.again_s = time.monotonic() + pause_s
            return
        standing.state = "given up"
        given_up = JobGivenUp(
            job=standing.record.job, attempts=standing.attempts, reason=str(standing.reason)
        )
        self._events.write("job-given-up", **given_up.model_dump(mode="json"))

    def _lost(self, standing: JobProgress) -> None:
        job = standing.record.job
        # Several ranks begin anew after a candidate that cannot be trained: no fault of theirs.
        standing.attempts -= standing.excused
        known = (standing.why(), self._launcher.ending(job))
        standing.reason = "; ".join(each for each in known if each)
        own = standing.last is not None and standing.last[0] in ("failed", "stopped")
        suspects = () if own else tuple(self._launcher.suspects(job))
        lost = JobLost(job=job, reason=standing.reason, where=standing.where, suspects=suspects)
        self._events.write("job-lost", **lost.model_dump(mode="json"))

    def _stop(self) -> None:
        self._events.write(ASKED)
        self._launcher.stop()
        self._wait()

    def _wait(self) -> None:
        """Until nobody works on a job any more, but not for ever."""
        end_s = time.monotonic() + _PATIENCE_S
        while self._launcher.alive() and time.monotonic() < end_s:
            time.sleep(self._pause_s)
