"""The task of a job as ``score.json`` states it."""

from __future__ import annotations

from typing import Literal

from vflops.record.files.document import Data

TaskKind = Literal["closed", "open"]


class Task(Data):
    """What was trained to which target, and whether a profile of vflops defines exactly that."""

    workload: str
    kind: TaskKind
    """``closed`` if a profile defines the task. VFLOPS of open tasks are not comparable."""
    digest: str | None
    """A hash of the definition; None if the workload is not installed."""
    profile: str
    """The profile that defines the task; for an open task, the profile that it is based on."""
    differences: tuple[str, ...] = ()
    """How an open task differs from that of the profile."""
