"""The callbacks through which a run reports its progress."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from vflops.record.folder import RunFolder
from vflops.record.formats.job import JobRecord
from vflops.record.formats.measurement import Measurement

if TYPE_CHECKING:
    from vflops.launch.controller import JobProgress
    from vflops.machine.ceilings.ceiling_plan import Item


@dataclass(frozen=True)
class RunObserver:
    """Callbacks that report the progress of a run."""

    step: Callable[[str], None] = lambda text: None
    """Called with the name of each step when it starts."""
    note: Callable[[str], None] = lambda text: None
    """Called with a result that is worth a line."""
    warn: Callable[[str], None] = lambda text: None
    """Called with a fault that makes the result invalid, before anything is trained."""
    progress: Callable[[str, int, int], None] = lambda text, done, whole: None
    """Called with the progress of a step: a description, the amount done, and the total."""
    plan: Callable[[tuple[Item, ...]], None] = lambda items: None
    """Called with all planned measurements."""
    start: Callable[[Item], None] = lambda item: None
    """Called when a measurement starts."""
    ceiling: Callable[[Measurement], None] = lambda measurement: None
    """Called with each measured ceiling."""
    folder: Callable[[RunFolder], None] = lambda folder: None
    """Called with the run folder, as soon as it exists."""
    job: Callable[[JobRecord, str, int, int | None], None] = lambda *job: None
    """Called when a job starts, with its place in the order of the jobs (`` (2 of 3)``), the number
    of jobs, and the operations per sample."""
    event: Callable[[str, dict[str, Any]], None] = lambda kind, data: None
    """Called with the kind and the data of each event of a job."""
    jobs: Callable[[Sequence[JobProgress]], None] = lambda jobs: None
    """Called repeatedly with the progress of all jobs that run at the same time."""
