"""Records in the run folder what was submitted to a scheduler, for later controllers."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import ClassVar

from vflops.errors import FolderError
from vflops.interruption import SIGNALS, unlimited
from vflops.record.files.document import Document
from vflops.record.folder import RunFolder

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
