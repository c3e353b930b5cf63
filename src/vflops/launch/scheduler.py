"""The interface of a site's scheduler: submit scripts, query all jobs at once, cancel them."""

from __future__ import annotations

import re
import shutil
from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from vflops.errors import RunFailed, UsageError
from vflops.launch.job_script import Request

_SHORTEST_S, _LONGEST_S = 1.0, 30.0

State = Literal["waiting", "running", "ended"]
EndedBy = Literal["completion", "failure", "time limit", "preemption", "cancellation", "memory"]
"""How a job ended; ``cancellation`` includes that of a job that could no longer start."""


class SchedulerUnavailable(RunFailed):
    """The scheduler did not answer; the same request may succeed later."""

    def __init__(self, message: str, *, may_have_succeeded: bool, hint: str | None = None) -> None:
        super().__init__(message, hint=hint or "check that the scheduler is up, then try again")
        self.may_have_succeeded = may_have_succeeded
        """Whether the request may have been received; False if there was no connection."""


@dataclass(frozen=True)
class JobStatus:
    """What the scheduler reports about a job; how the job ended is only in its log."""

    state: State
    nodes: tuple[str, ...]
    reason: str | None
    """The scheduler's message, if any."""
    restarts: int = 0
    """How often the scheduler has put the job back into the queue."""
    ended_by: EndedBy | None = None
    """None if it has not ended, or in another way, for example with its node."""


@dataclass(frozen=True)
class Unreachable:
    """What the scheduler reports about a node that is down, or that did not answer it."""

    text: str
    is_down: bool
    """Whether the scheduler has given up the jobs of the node."""


class Scheduler(ABC):
    """A queue that takes scripts and runs them on nodes."""

    def __init__(self, name: str, submit_command: str) -> None:
        """Raise UsageError if ``submit_command`` is not installed here."""
        require_command(submit_command, name)
        self.name = name
        self.label = name
        """The scheduler's name in the record."""
        self.interval_s = _SHORTEST_S
        """The time to the next query, which grows up to 30 s while nothing changes."""
        self._statuses: dict[str, JobStatus] = {}

    @abstractmethod
    def submit(self, request: Request) -> str:
        """Submit the request's script and return the scheduler's id of the job."""

    @abstractmethod
    def find(self, name: str, intent: Path) -> str | None:
        """Return the id of the user's job with that name, even if it has just ended; else None.

        ``intent`` is the file that announces the submission.
        """

    @abstractmethod
    def cancel(self, ids: Sequence[str]) -> None:
        """End these jobs; those that have already ended are left alone."""

    @abstractmethod
    def stop(self, ids: Sequence[str]) -> None:
        """Ask these jobs to write a checkpoint and end; cancel those that are queued."""

    @abstractmethod
    def _query(self, ids: Sequence[str]) -> dict[str, JobStatus]:
        """Return the current status of these jobs; there is at least one."""

    def look(self, ids: Sequence[str]) -> dict[str, JobStatus]:
        """Return the status of each job, queried together.

        If the scheduler does not answer, the jobs keep their last known status.
        """
        before = {job: self._statuses.get(job) for job in ids}
        if ids:
            try:
                self._statuses.update(self._query(ids))
            except SchedulerUnavailable as error:
                unknown = JobStatus("waiting", (), error.message)
                self._statuses.update({job: before[job] or unknown for job in ids})
        now = {job: self._statuses[job] for job in ids}
        self.interval_s = _SHORTEST_S if now != before else min(1.5 * self.interval_s, _LONGEST_S)
        return now

    def unreachable_nodes(self, nodes: Collection[str]) -> dict[str, Unreachable]:
        """Return those of the nodes that are down, or that the scheduler does not reach."""
        return {}

    def expect_change(self) -> None:
        """Query again soon: something was just submitted or cancelled, or is about to end."""
        self.interval_s = _SHORTEST_S


def require_command(command: str, scheduler: str) -> None:
    """Raise UsageError if a scheduler's command is not installed on this machine."""
    if shutil.which(command) is None:
        raise UsageError(
            f"no {command} here: {scheduler} is not on this machine, or not on PATH",
            hint="start from a login node of the cluster (module load?), or use --on local",
        )


def last_line(text: str) -> str:
    """Return the line of a failed command's output that says what is wrong."""
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("Try ")]
    return re.sub(
        r"^\w+: (?:error|fatal): (Batch job submission failed: )?", "", lines[-1] if lines else ""
    )
