"""What starts the jobs of a run, wherever that is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from typing import ClassVar

ASKED = "jobs-asked"
"""The event of a controller that asks all its jobs to end."""


class Launcher(ABC):
    """Starts jobs and sees whether they run; what became of one is in the job's own log."""

    name: str
    together: ClassVar[bool] = False
    """Whether jobs that start at once share a place, so that all wait for the last to be ready."""

    @abstractmethod
    def start(self, jobs: Mapping[int, int]) -> Collection[int]:
        """Begin an attempt at each of these jobs that has a place now; which those are.

        ``jobs``: how often each may be tried; a launcher may itself try again what dies.
        """

    @abstractmethod
    def alive(self) -> Collection[int]:
        """The jobs that wait for a place or run, all with one look."""

    @abstractmethod
    def where(self, job: int) -> str:
        """The place of a job in a few words."""

    @abstractmethod
    def ending(self, job: int) -> str | None:
        """What the launcher knows of how the newest attempt at a job ended."""

    @abstractmethod
    def stop(self) -> None:
        """Ask every job of the run to keep a checkpoint and end."""

    def suspects(self, job: int) -> Collection[str]:
        """Nodes whose fault it may be that the newest attempt died; of a scheduler's only."""
        return ()

    def elsewhere(self, job: int) -> str | None:
        """Said of an attempt that ended at once because another is at the job; None: it did not."""
        return None

    def unseen(self, job: int) -> str | None:  # (only a scheduler's nodes may have other folders)
        """Why nothing that a job writes can come into the run folder, where that is so."""
        return None

    def kill(self) -> None:  # noqa: B027  (a process of this machine ends by itself)
        """End what still waits or runs when all jobs are over."""
