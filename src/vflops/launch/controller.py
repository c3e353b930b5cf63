"""The job controller: starts the jobs of an ensemble, follows them, and retries those that die.

Whether a job has ended is read from the job's log; a launcher only knows whether it is running. So
if a controller dies, another can take over, and no job is started twice.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from vflops.errors import Interrupted, Left, RunFailed
from vflops.interruption import SignalCounter, cause
from vflops.launch.job_history import attempt_histories
from vflops.launch.launcher import JOBS_ASKED, Ending, Launcher
from vflops.launch.node_check.recorder import NodeRecorder
from vflops.launch.rank_failures import RankFailure, restart_needed, root_cause
from vflops.record.folder import RunFolder
from vflops.record.formats.job import JobRecord
from vflops.record.formats.job_events import WORK_PHASES, JobBegun, JobEnded, JobGivenUp, JobLost
from vflops.record.log.events import EventWriter
from vflops.record.log.tail import Listener, Tail

_POLL_S, _POLL_PER_JOB_S, _MAX_POLL_S = 0.25, 0.001, 5.0
"""The pause between two polls; it grows with the number of jobs, as each has files to read."""
_PATIENCE_S = 90.0
"""How long jobs may take to end after they are asked to."""
_LONGEST_PAUSE_S = 60.0
_CHECK_S = 20.0
"""How often to check that a job without output can see the run folder."""


class Leave(KeyboardInterrupt):
    """Raised if the user wants to stop the controller but let the jobs continue."""


_SETTLED = ("candidate-trained", "candidate-failed", "candidate-cut")
"""Events after which the worker of a search trains another candidate, whatever happens to it."""


@dataclass
class JobProgress:
    """The progress of one job, as the table shows it."""

    record: JobRecord
    state: str = "waiting"
    """``waiting``, ``running``, ``ended`` or ``given up``."""
    location: str = ""
    attempts: int = 0
    epoch: float = 0.0
    quality: float | None = None
    loss: float | None = None
    """The loss at the last progress event."""
    samples: int = 0
    work_s: float = 0.0
    """The seconds that the newest attempt spent on training, waiting for data and checkpoints."""
    first_sample: int = 0
    """The sample that the newest attempt resumed from."""
    ops_per_sample: int | None = None
    reason: str | None = None
    """Why the last attempt died."""
    full_disk_hint: str | None = None
    """What to do about the full disk that ended the last attempt; None if another cause did."""
    losses: int = 0
    """How many attempts died while this controller watched; restarts that are excused not."""
    max_attempts: int = 1
    retry_s: float = 0.0
    """The time of the next attempt, by this process's clock."""
    newest: int = -1
    """The number of the newest attempt in the run folder; -1 if there is none."""
    awaited: bool = False
    """Whether an attempt was started whose folder does not exist yet."""
    last: tuple[str, dict[str, Any]] | None = None
    """The newest event of the newest attempt."""
    observer: Listener | None = None
    """What the workload has to follow the job's events, if anything."""
    began_at: int | None = None
    """The sample that the newest attempt began with; None if it has not begun to train."""
    excused_at: int = -1
    """The same for the last attempt that a time limit ended without costing an attempt."""

    def take(self, kind: str, data: dict[str, Any]) -> None:
        """Process an event of the newest attempt."""
        self.last = kind, data
        if self.observer is not None:
            self.observer(kind, data)
        if kind in ("progress", "evaluation", "finished"):
            self.epoch = float(data["epoch"])
            self.samples = int(data["samples"])
            self.work_s = sum(data["phases"].get(phase, 0.0) for phase in WORK_PHASES)
        if kind == "job":
            self.first_sample, self.work_s = 0, 0.0
        if kind == "resumed":
            self.first_sample = int(data["samples"])
        if kind in ("job", "resumed"):
            self.began_at = self.first_sample
        if kind in _SETTLED:
            self.excused_at = -1
        if kind == "evaluation":
            self.quality = float(data["quality"])
        if data.get("loss") is not None:
            self.loss = float(data["loss"])
        if kind == "end":
            self.state = "ended"

    @property
    def shown_state(self) -> str:
        """The state as shown: a job that has started but written nothing yet counts as waiting."""
        return "waiting" if self.state == "running" and self.awaited else self.state

    @property
    def over(self) -> bool:
        """Whether the job has ended or was given up."""
        return self.state in ("ended", "given up")

    @property
    def samples_per_s(self) -> float | None:
        """Mean samples per second of the newest attempt; None if nothing is done."""
        return (self.samples - self.first_sample) / self.work_s if self.work_s else None

    @property
    def units_per_s(self) -> float | None:
        """The same in units of samples, such as tokens; None if samples have no unit."""
        unit, per_s = self.record.data.unit, self.samples_per_s
        return None if unit is None or per_s is None else unit.count * per_s

    @property
    def flops(self) -> float | None:
        """Mean FLOPS of the newest attempt; None if nothing is done or operations are unknown."""
        if self.ops_per_sample is None or not self.work_s:
            return None
        return self.ops_per_sample * (self.samples - self.first_sample) / self.work_s

    def excuse_limit(self) -> bool:
        """Excuse a time limit if the attempt began with a later sample than the last one excused.

        That an attempt trained is not enough: without a checkpoint, the next one repeats its steps.
        """
        if self.began_at is None or self.began_at <= self.excused_at:
            return False
        self.excused_at = self.began_at
        return True

    def why(self) -> str:
        """Return why the newest attempt ended without finishing, as far as its log shows."""
        if self.last is None:
            return "it died before it wrote anything"
        kind, data = self.last
        if kind in ("failed", "stopped"):
            return str(data.get("message"))
        return f"it died after {kind!r}"


class Controller:
    """Runs the jobs of a run until all have ended or were given up."""

    def __init__(
        self,
        folder: RunFolder,
        events: EventWriter,
        launcher: Launcher,
        records: Sequence[JobRecord],
        *,
        attempts: int,
        ops_per_sample: int | None = None,
        observe: Callable[[JobRecord], Listener | None] = lambda record: None,
        show: Callable[[Sequence[JobProgress]], None] = lambda jobs: None,
        recorder: NodeRecorder | None = None,
    ) -> None:
        """``recorder`` records what the nodes measure before the jobs start."""
        self._folder, self._events, self._launcher = folder, events, launcher
        self._attempts, self._show, self._recorder = attempts, show, recorder
        self._jobs = {
            record.job: JobProgress(
                record,
                ops_per_sample=ops_per_sample,
                observer=observe(record),
                max_attempts=attempts,
            )
            for record in records
        }
        self._tails: dict[int, Tail] = {}
        self._checked_s = 0.0

    def run(self) -> list[JobProgress]:
        """Run until every job has ended or was given up, and return the jobs' final progress."""
        try:
            self._take_over()
            while not self._over():
                self._record_nodes()
                self._poll()
                self._start()
                self._show(list(self._jobs.values()))
                time.sleep(self._pause_s)
            self._record_nodes()
            self._launcher.expect_end()
            self._wait()  # an agent still writes for a moment after the job's last event
            if self._launcher.active_jobs():  # copies that are still in the scheduler's queue
                with suppress(RunFailed):  # if they cannot be cancelled, they end by themselves
                    self._launcher.kill()
        except Leave:
            raise Left(
                "its jobs were left running",
                hint=f"follow them again: vflops attach {self._folder.path}",
            ) from None
        except KeyboardInterrupt as error:
            unreached = self._stop()
            if unreached is not None:
                raise Interrupted(
                    f"{cause(error)}; its jobs could not be asked to end: {unreached.message}",
                    hint=f"end them: vflops cancel {self._folder.path}",
                ) from None
            raise Interrupted(f"{cause(error)}; its jobs were asked to write checkpoints") from None
        return list(self._jobs.values())

    @property
    def _pause_s(self) -> float:
        return min(_POLL_S + _POLL_PER_JOB_S * len(self._jobs), _MAX_POLL_S)

    def _take_over(self) -> None:
        """Read the progress of jobs that earlier controllers started."""
        history, histories = self._folder.history(*self._jobs), attempt_histories(self._folder)
        active = self._launcher.active_jobs()
        for job, progress in self._jobs.items():
            before, folders = histories[job], self._folder.next_attempt(job)
            progress.attempts = before.losses
            started = before.started
            if history.ended(job):
                progress.state = "ended"
            elif before.given_up is not None:
                progress.state, progress.reason = "given up", before.given_up
            elif before.running or job in active or folders > started:
                # If it has died since then, the next poll will notice.
                progress.state, progress.location = "running", self._launcher.location(job)
                progress.attempts += before.running
                if not before.running:  # the controller died before it recorded the start
                    self._record_start(progress)
                    started += 1
                progress.awaited = started > folders
                progress.newest = min(started, folders) - 1
                self._follow(progress)
            else:
                progress.newest = folders - 1

    def _record_nodes(self) -> None:
        if self._recorder is not None:
            self._recorder.poll()

    def _over(self) -> bool:
        return all(job.over for job in self._jobs.values())

    def _start(self) -> None:
        now_s = time.monotonic()
        for job, tail in self._tails.items():
            if self._jobs[job].state == "waiting":  # another agent may run and finish it
                tail.read()
                self._record_end(self._jobs[job])
        waiting = [progress for progress in self._jobs.values() if progress.state == "waiting"]
        due = [progress for progress in waiting if progress.retry_s <= now_s]
        for progress in waiting:
            left_s = progress.retry_s - now_s
            job = progress.record.job
            progress.location = (
                f"again in {left_s:.0f} s" if left_s > 0 else self._launcher.location(job)
            )
        if not due or (self._launcher.gang and len(due) < len(waiting)):
            return
        tries = {progress.record.job: self._attempts - progress.attempts for progress in due}
        for job in self._launcher.start(tries):
            self._record_start(self._jobs[job], sync=False)
            self._jobs[job].awaited, self._jobs[job].last = True, None
            self._tails.pop(job, None)
        self._events.sync()

    def _record_start(self, progress: JobProgress, *, sync: bool = True) -> None:
        progress.state, progress.location = "running", self._launcher.location(progress.record.job)
        progress.attempts += 1
        begun = JobBegun(
            job=progress.record.job,
            launcher=self._launcher.label,
            where=progress.location,
            attempt=progress.attempts,
        )
        self._events.write("job-begun", sync=sync, **begun.model_dump(mode="json"))

    def _record_end(self, progress: JobProgress) -> None:
        """Record when a job ended, by the clock of this machine."""
        if progress.state == "ended":
            ended = JobEnded(job=progress.record.job)
            self._events.write("job-ended", sync=False, **ended.model_dump(mode="json"))

    def _poll(self) -> None:
        active = self._launcher.active_jobs()
        check = time.monotonic() - self._checked_s >= _CHECK_S
        if check:
            self._checked_s = time.monotonic()
        for job, progress in self._jobs.items():
            if progress.state != "running":
                continue
            progress.location = self._launcher.location(job)
            if progress.awaited and self._recorder is not None and self._recorder.measuring:
                progress.location += ": measuring ceilings"
            self._read(progress)  # after the query, so that an inactive job's last event is read
            self._record_end(progress)
            if progress.awaited and (check or job not in active):
                self._check_visible(job)
            if job not in active and progress.state == "running":
                self._gone(progress)

    def _read(self, progress: JobProgress) -> None:
        """Read new events, including those of attempts that the launcher itself started."""
        job = progress.record.job
        if job in self._tails:
            self._tails[job].read()
        for attempt in range(progress.newest + 1, self._folder.next_attempt(job)):
            if progress.state == "ended":
                return
            if not progress.awaited:
                self._lost(progress, self._launcher.ending(job))
                self._record_start(progress)
            progress.awaited, progress.newest = False, attempt
            self._follow(progress)

    def _follow(self, progress: JobProgress) -> None:
        """Read the log of the newest attempt."""
        if progress.newest >= 0:
            job = progress.record.job
            path = self._folder.attempt_folder(job, progress.newest) / "events.jsonl"
            progress.last = progress.began_at = None
            self._tails[job] = Tail(path, progress.take)
            self._tails[job].read()

    def _check_visible(self, job: int) -> None:
        """End the run if its first job shows that the nodes do not see the run folder."""
        reason = self._launcher.invisible_reason(job)
        if reason and not any(self._folder.next_attempt(other) for other in self._jobs):
            self._stop()
            raise RunFailed(
                f"{self._folder.path} is not visible from the nodes: {reason}",
                hint="put runs on a file system that all nodes share: choose it with --out",
            )

    def _gone(self, progress: JobProgress) -> None:
        ending = self._launcher.ending(progress.record.job)
        if ending.how == "elsewhere":  # nothing died; try again later
            progress.attempts -= 1
            progress.state, progress.retry_s = "waiting", time.monotonic() + _LONGEST_PAUSE_S
            self._follow(progress)
            return
        self._lost(progress, ending)
        if progress.attempts < self._attempts and ending.how != "cancelled":
            progress.state = "waiting"
            pause_s = min(2.0 ** (progress.attempts - 1), _LONGEST_PAUSE_S)
            progress.retry_s = time.monotonic() + pause_s
            return
        progress.state = "given up"
        given_up = JobGivenUp(
            job=progress.record.job, attempts=progress.attempts, reason=str(progress.reason)
        )
        self._events.write("job-given-up", **given_up.model_dump(mode="json"))

    def _lost(self, progress: JobProgress, ending: Ending) -> None:
        job = progress.record.job
        excused = ending.how == "requeue" or (ending.how == "limit" and progress.excuse_limit())
        # The worker of a search restarts after a candidate that cannot be trained.
        excused = self._wants_restart(progress) or excused
        progress.attempts -= excused
        progress.losses += not excused
        cause = self._cause(progress)
        progress.reason = _reason(progress, cause, ending)
        progress.full_disk_hint = cause.hint if cause is not None and cause.disk_full else None
        lost = JobLost(
            job=job,
            reason=progress.reason,
            where=progress.location,
            suspects=_suspects(progress, cause, ending),
            hung=cause is not None and cause.kind == "hung",
            excused=excused,
        )
        self._events.write("job-lost", **lost.model_dump(mode="json"))

    def _wants_restart(self, progress: JobProgress) -> bool:
        known = not progress.awaited and progress.newest >= 0
        attempt = self._folder.attempt_folder(progress.record.job, progress.newest)
        return known and restart_needed(attempt)

    def _cause(self, progress: JobProgress) -> RankFailure | None:
        """Return the failure of the rank that ended the newest attempt; None if it is not known."""
        if progress.awaited or progress.newest < 0:
            return None
        cause = root_cause(self._folder.attempt_folder(progress.record.job, progress.newest))
        return None if cause is None or cause.is_consequence else cause

    def _stop(self) -> RunFailed | None:
        """Ask the jobs to stop, and again for each further signal, which makes them hurry.

        Return the error if they could not be asked.
        """
        with SignalCounter() as signals:
            try:
                self._launcher.stop()
                self._events.write(JOBS_ASKED)
                self._wait(signals)
            except RunFailed as error:
                return error
        return None

    def _wait(self, signals: SignalCounter | None = None) -> None:
        """Wait until no job is active, up to a limit."""
        end_s, asked = time.monotonic() + _PATIENCE_S, 0
        while self._launcher.active_jobs() and time.monotonic() < end_s:
            if signals is not None and signals.count > asked:
                asked = signals.count
                self._launcher.stop()
            time.sleep(self._pause_s)


def _reason(progress: JobProgress, cause: RankFailure | None, ending: Ending) -> str:
    """Return why the newest attempt died, beginning with the cause."""
    report, first = ending.report, progress.why() if cause is None else cause.text
    if ending.how == "cancelled":
        first = "it was cancelled"
    elif cause and report and report.message in (cause.text, cause.message):  # it says the same
        first = ""
    return "; ".join(filter(None, (first, ending.reason, report.text if report else None)))


def _suspects(progress: JobProgress, cause: RankFailure | None, ending: Ending) -> tuple[str, ...]:
    """Return the nodes that may have caused the newest attempt to die."""
    kind = progress.last[0] if progress.last is not None else ""
    if not cause.may_be_the_node if cause else kind in ("failed", "stopped"):
        return ()  # an error of its own
    nodes = tuple(ending.suspects)
    blamed = cause.nodes or (cause.node,) if cause is not None else ()
    return blamed if blamed and set(blamed) <= set(nodes) else nodes
