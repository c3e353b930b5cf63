"""What starts the jobs of a run, wherever that is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection


class Launcher(ABC):
    """Starts jobs and sees whether they run; what became of one is in the job's own log."""

    name: str

    @abstractmethod
    def start(self, job: int) -> bool:
        """Begin an attempt at the job; False where its place is still taken."""

    @abstractmethod
    def alive(self) -> Collection[int]:
        """The jobs that wait for a place or run, all with one look."""

    @abstractmethod
    def where(self, job: int) -> str:
        """The place of a job in a few words."""

    @abstractmethod
    def stop(self) -> None:
        """Ask every job of the run to keep a checkpoint and end."""
