"""What starts the jobs of a run, wherever that is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from typing import ClassVar


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

    def lost(self, job: int) -> None:  # noqa: B027  (only a scheduler has nodes to choose from)
        """Told that an attempt at the job died where it was."""

    def unseen(self, job: int) -> str | None:  # (only a scheduler's nodes may have other folders)
        """Why nothing that a job writes can come into the run folder, where that is so."""
        return None
