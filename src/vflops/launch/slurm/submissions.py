"""Submits scripts, and records them in the run folder so that a later controller finds them."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import FrameType
from typing import ClassVar

from vflops.errors import FolderError, UsageError
from vflops.interruption import SIGNALS, unlimited
from vflops.launch.job_script import Request, Step, step_logs
from vflops.launch.scheduler import Scheduler, SchedulerUnavailable
from vflops.launch.sizing import RankShare
from vflops.launch.slurm.outage import Outage, patiently
from vflops.record.files import atomic
from vflops.record.files.document import Document
from vflops.record.folder import RunFolder

_IN_FLIGHT_S = 5.0
"""How long a submission may still take after the submitting process has died."""
_STALE_S = 300.0
"""A script that the scheduler does not know after this time was not submitted, or has ended."""
_INTENT = ".intent.json"


class Submitted(Document):
    """``submitted.json`` of a job: how the scheduler identifies it."""

    schema_name: ClassVar[str] = "vflops.submitted"

    scheduler: str
    """The scheduler, or the user's allocation that the job runs in."""
    id: str
    attempt: int
    """The number of its submissions, from 1."""
    script: str = ""
    """The script, relative to the run folder; its output is next to it."""
    first_node: int = 0
    nodes: int | None = None
    """The number of the job's nodes, counted from ``first_node``; None for all the others."""
    log_start: int = 0
    """The number of bytes that earlier submissions wrote to the output."""
    share: RankShare | None = None
    """What each rank was given, which retries ask for again; None in earlier runs."""
    restarts: int = 0
    """How often SLURM had requeued the script when an attempt last ended by that."""


class Intent(Document):
    """``<script>.intent.json``: a script is being submitted, and its id is not known yet."""

    schema_name: ClassVar[str] = "vflops.intent"

    name: str
    """The job's name in the scheduler, which no other submission has."""
    scheduler: str
    script: str
    jobs: dict[int, Submitted]
    """The records of the jobs, except for the id."""

    def write_beside(self, folder: RunFolder) -> None:
        """Write the file next to the script; it stays there until ``settle`` or ``forget``."""
        self.write(self.file(folder))

    def settle(self, folder: RunFolder, native: str) -> dict[int, Submitted]:
        """Record the id of each job, remove the intent and return the records."""
        records = {
            job: record.model_copy(update={"id": native}) for job, record in self.jobs.items()
        }
        for job, record in records.items():
            record.write(_file(folder, job))
        self.forget(folder)
        return records

    def forget(self, folder: RunFolder) -> None:
        """Remove the file of the intent."""
        with suppress(FileNotFoundError):
            self.file(folder).unlink()

    def file(self, folder: RunFolder) -> Path:
        """Return the path of the intent's file."""
        return (folder.path / self.script).with_suffix(_INTENT)

    def age_s(self, folder: RunFolder) -> float:
        """Return the seconds since the file was written; infinite if it has been removed."""
        with suppress(FileNotFoundError):
            return time.time() - self.file(folder).stat().st_mtime
        return float("inf")


class Submissions:
    """The scripts of a run's jobs in a scheduler."""

    def __init__(self, folder: RunFolder, scheduler: Scheduler, jobs: Sequence[int]) -> None:
        """Find what earlier controllers submitted, even if one died while it did."""
        self._folder, self._scheduler, self._label = folder, scheduler, scheduler.label
        self._adopt()
        found = {job: record for job in jobs if (record := read_submission(folder, job))}
        self.newest = {
            job: record for job, record in found.items() if record.scheduler == self._label
        }
        """The newest submission of each job."""

    @property
    def ids(self) -> list[str]:
        """The scheduler's ids of the newest submissions."""
        return sorted({record.id for record in self.newest.values()})

    @property
    def share(self) -> RankShare | None:
        """What each rank was given in an earlier submission; None if there was none."""
        shares = (record.share for record in self.newest.values())
        return next((share for share in shares if share is not None), None)

    def outputs(self, job: int) -> list[bytes]:
        """Return the output of the job's script since it was submitted, and that of its steps."""
        record = self.newest.get(job)
        if record is None or not record.script:
            return []
        own = b""
        with suppress(FileNotFoundError):  # it has not started
            own = self.log(record).read_bytes()[record.log_start :]
        steps = step_logs(self._folder.path / record.script, job)
        return [own, *(path.read_bytes() for path in steps)]

    def log(self, record: Submitted) -> Path:
        """Return the file with the output of a script."""
        return (self._folder.path / record.script).with_suffix(".log")

    def submit(
        self, steps: Sequence[Step], request: Request, script: Callable[[Request], str]
    ) -> None:
        """Submit a script; record its name before the submission, and its id afterwards."""
        path, log = str(request.script.relative_to(self._folder.path)), request.output
        start = log.stat().st_size if log.is_file() else 0
        share = RankShare(
            request.cores_per_task,
            request.gpus_per_task,
            request.gpu_type,
            request.memory_mb_per_task,
        )
        jobs = {
            step.job: Submitted(
                scheduler=self._label,
                id="",
                attempt=self.next_attempt(step.job),
                script=path,
                first_node=step.first_node,
                nodes=step.nodes,
                log_start=start,
                share=share,
            )
            for step in steps
        }
        intent = Intent(name=request.name, scheduler=self._label, script=path, jobs=jobs)
        hint = f"nothing is lost: vflops resume {self._folder.path} when {self._label} answers"
        outage, uncertain = Outage(self._label, hint=hint), False
        while True:
            atomic.write_text(request.script, script(request))
            unavailable = None
            with defer_signals():
                if not intent.file(self._folder).exists():
                    intent.write_beside(self._folder)
                try:
                    native = self._find(intent) if uncertain else None
                    native = native or self._scheduler.submit(request)
                    self.newest |= intent.settle(self._folder, native)
                    break
                except SchedulerUnavailable as error:
                    unavailable, uncertain = error, uncertain or error.may_have_succeeded
                except UsageError:  # after other errors, the script may still have been accepted
                    intent.forget(self._folder)
                    if not request.exclude:
                        raise
                    # Too few nodes may be left, so try again with the excluded ones.
                    request = replace(request, exclude=())
            if unavailable is not None:
                outage.wait(unavailable)
        outage.over()

    def record_restarts(self, job: int, restarts: int) -> None:
        """Record how often the job's script has been requeued, for later controllers, too."""
        self.newest[job] = self.newest[job].model_copy(update={"restarts": restarts})
        self.newest[job].write(_file(self._folder, job))

    def next_attempt(self, job: int) -> int:
        """Return the number of the job's next submission, from 1."""
        before = self.newest.get(job)
        return before.attempt + 1 if before else 1

    def _adopt(self) -> None:
        """Find the ids of scripts whose controller died while submitting them."""
        for intent in read_intents(self._folder):
            if intent.scheduler != self._label:
                continue
            hint = f"vflops attach {self._folder.path} when {self._label} answers"
            outage = Outage(self._label, hint=hint)
            native = patiently(partial(self._find, intent), outage)
            if native is not None:
                intent.settle(self._folder, native)
            elif intent.age_s(self._folder) > _STALE_S:
                intent.forget(self._folder)

    def _find(self, intent: Intent) -> str | None:
        """Return the id of a script that may have been submitted; wait if it may be on its way."""
        left_s = min(_IN_FLIGHT_S - intent.age_s(self._folder), _IN_FLIGHT_S)
        end_s, file = time.monotonic() + left_s, intent.file(self._folder)
        native = self._scheduler.find(intent.name, file)
        while native is None and time.monotonic() < end_s:
            time.sleep(0.5)
            native = self._scheduler.find(intent.name, file)
        return native


def read_submission(folder: RunFolder, job: int) -> Submitted | None:
    """Return the record of a job's submission; None if it was not submitted."""
    path = _file(folder, job)
    return Submitted.read(path) if path.is_file() else None


def read_intents(folder: RunFolder) -> list[Intent]:
    """Return the intents of scripts that a controller may have submitted before it died."""
    pending = []
    for path in (*folder.path.glob(f"*{_INTENT}"), *folder.path.glob(f"jobs/*/*{_INTENT}")):
        try:
            pending.append(Intent.read(path))
        except FolderError:
            if path.exists():  # otherwise a live controller has just settled it
                raise
    return pending


@contextmanager
def defer_signals() -> Iterator[None]:
    """Defer signals that would interrupt this process until the end of the block.

    This uses handlers, because processes that are started in the block would inherit a mask.
    """
    received: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        received.append(number)

    before = {number: signal.signal(number, note) for number in SIGNALS}
    try:
        with unlimited():
            yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for signal_number in received:
            signal.raise_signal(signal_number)


def _file(folder: RunFolder, job: int) -> Path:
    return folder.job_file(job).with_name("submitted.json")
