"""The interface of launchers, which start and watch the jobs of a run."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from typing import ClassVar

JOBS_ASKED = "jobs-asked"
"""The event that a controller writes when it asks all its jobs to end."""


class Launcher(ABC):
    """Starts jobs and reports whether they run; the outcome of a job is in its log."""

    name: str
    gang_scheduled: ClassVar[bool] = False
    """Whether all jobs start at once in one allocation, as soon as all of them are due."""

    @abstractmethod
    def start(self, jobs: Mapping[int, int]) -> Collection[int]:
        """Start an attempt at those of the jobs that can run now, and return their numbers.

        ``jobs`` maps each job to the attempts that it has left; a launcher may itself retry jobs
        that die.
        """

    @abstractmethod
    def active_jobs(self) -> Collection[int]:
        """Return the jobs that are queued or running, with one query for all of them."""

    @abstractmethod
    def location(self, job: int) -> str:
        """Return a short description of where a job runs."""

    @abstractmethod
    def exit_reason(self, job: int) -> str | None:
        """Return what the launcher knows about how the newest attempt at a job ended."""

    @abstractmethod
    def stop(self) -> None:
        """Ask every job of the run to write a checkpoint and end."""

    def suspects(self, job: int) -> Collection[str]:
        """Return the nodes that may have caused the newest attempt to die; empty if not known."""
        return ()

    def running_elsewhere(self, job: int) -> str | None:
        """Return the message of an attempt that ended at once because another runs the job."""
        return None

    def invisible_reason(self, job: int) -> str | None:
        """Return why the run folder cannot be seen from the job's nodes; None if it can."""
        return None

    def expect_end(self) -> None:  # noqa: B027  (most launchers look at once anyway)
        """Look soon whether jobs have ended, because their logs say so."""

    def kill(self) -> None:  # noqa: B027  (processes on this machine end by themselves)
        """End the jobs that are still queued or running when the run is over."""
