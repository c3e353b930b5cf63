"""What was handed in to a scheduler, as the run folder knows it for whoever takes over."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import ClassVar

from vflops.errors import FolderError
from vflops.record.files.document import Document
from vflops.record.folder import RunFolder

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)
_INTENT = ".intent.json"


class Submitted(Document):
    """``submitted.json`` of a job: what the scheduler knows it by."""

    schema_name: ClassVar[str] = "vflops.submitted"

    scheduler: str
    """The scheduler, or the allocation of the user's that it runs in."""
    id: str
    attempt: int
    """How often it was handed in, from 1."""
    script: str = ""
    """What was handed in, under the run folder; its output lies beside it."""
    first_node: int = 0
    nodes: int | None = None
    """Of an allocation's nodes those of the job, from the first of them; None: all."""
    log_start: int = 0
    """Bytes of the output that are of earlier ones."""


class Intent(Document):
    """``<script>.intent.json``: a script is being handed in, and its id is not known yet."""

    schema_name: ClassVar[str] = "vflops.intent"

    name: str
    """What the scheduler shall call it; nothing else that was ever handed in has this name."""
    scheduler: str
    script: str
    jobs: dict[int, Submitted]
    """As they will be written down, but for the id."""

    def write_beside(self, folder: RunFolder) -> None:
        """Write it down; it stays until ``settle``."""
        self.write(self.file(folder))

    def settle(self, folder: RunFolder, native: str) -> dict[int, Submitted]:
        """Write down the id for each job, and forget the intent."""
        known = {job: each.model_copy(update={"id": native}) for job, each in self.jobs.items()}
        for job, each in known.items():
            each.write(_file(folder, job))
        self.forget(folder)
        return known

    def forget(self, folder: RunFolder) -> None:
        """Nothing was handed in."""
        with suppress(FileNotFoundError):
            self.file(folder).unlink()

    def file(self, folder: RunFolder) -> Path:
        """Where it is."""
        return (folder.path / self.script).with_suffix(_INTENT)

    def age_s(self, folder: RunFolder) -> float:
        """Seconds since it was written; without end where somebody else has settled it."""
        with suppress(FileNotFoundError):
            return time.time() - self.file(folder).stat().st_mtime
        return float("inf")


def submitted(folder: RunFolder, job: int) -> Submitted | None:
    """What a job was handed in as, where it was."""
    path = _file(folder, job)
    return Submitted.read(path) if path.is_file() else None


def intents(folder: RunFolder) -> list[Intent]:
    """Scripts that may have been handed in by a controller that died before it knew their ids."""
    found = []
    for path in (*folder.path.glob(f"*{_INTENT}"), *folder.path.glob(f"jobs/*/*{_INTENT}")):
        try:
            found.append(Intent.read(path))
        except FolderError:
            if path.exists():  # else a living controller has just settled it
                raise
    return found


@contextmanager
def signals_deferred() -> Iterator[None]:
    """What would interrupt this process does so afterwards.

    Handlers and no mask: a process that is started meanwhile would inherit a mask.
    """
    came: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        came.append(number)

    before = {number: signal.signal(number, note) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for each in came:
            signal.raise_signal(each)


def _file(folder: RunFolder, job: int) -> Path:
    return folder.job_file(job).with_name("submitted.json")
