"""The public interface of launchers: where the jobs of a run are started, watched and stopped.

The setting ``launch.on`` names a launcher. A package can provide its own through an entry point in
the group ``vflops.launchers``: a subclass of ``Launcher``. The class knows the place before there
is a run; an instance has the jobs of one run. Whether a job has ended is read from the job's log,
so a launcher only needs to know whether something still runs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from vflops.config.launch import LaunchSettings
from vflops.errors import UsageError
from vflops.launch.agent_report import AgentReport
from vflops.launch.placement import Node
from vflops.launch.scheduler import JobStatus
from vflops.launch.site import SiteSettings
from vflops.launch.sizing import RankShare
from vflops.record.folder import RunFolder
from vflops.record.formats.job import JobRecord

JOBS_ASKED = "jobs-asked"
"""The event that a controller writes when it asks all its jobs to end."""


Look = Callable[[], JobStatus]
"""Returns whether something is queued, running or has ended, and on which nodes."""


How = Literal["fault", "limit", "requeue", "cancelled", "elsewhere"]


@dataclass(frozen=True)
class Ending:
    """What a launcher knows about how the newest attempt at a job ended."""

    how: How = "fault"
    """``fault`` costs an attempt; ``limit``, a time limit, does not if the job advances from one
    attempt to the next; nor does ``requeue``, which includes preemption. ``cancelled``: someone
    cancelled the job, and it is given up. ``elsewhere``: the attempt ended at once because another
    agent runs the job."""
    reason: str | None = None
    """What the launcher or the scheduler says."""
    report: AgentReport | None = None
    """The last report of the job's agents, if the launcher can read it."""
    suspects: Collection[str] = ()
    """The nodes that may have caused the attempt to die."""


class Launcher(ABC):
    """Starts the jobs of a run and reports whether they run."""

    name: ClassVar[str]
    """The value of ``launch.on``."""
    is_this_machine: ClassVar[bool] = False
    """Whether jobs are processes on the machine that the command runs on."""
    nodes_join: ClassVar[bool] = False
    """Whether nodes add themselves to the run with ``vflops join``, and leave when it ends."""
    gang: bool = False
    """Whether ``start`` starts all jobs or none."""

    @classmethod
    def check(cls, settings: LaunchSettings) -> None:
        """Raise UsageError if no job could be started with these settings."""

    @classmethod
    @abstractmethod
    def nodes(cls, settings: LaunchSettings, device: str) -> list[Node]:
        """Return the nodes that jobs can use, with the number of ranks that each can take."""

    @classmethod
    def gang_scheduled(cls, settings: LaunchSettings) -> bool:
        """Whether all jobs start at once, as soon as all of them are due."""
        return False

    @classmethod
    def nodes_reserved(cls) -> bool:
        """Whether the nodes are already reserved for the user, instead of shared by a queue."""
        return False

    @classmethod
    def nodes_to_check(cls, nodes: int | None, site: SiteSettings) -> tuple[int, Mapping[str, str]]:
        """Return how many of ``nodes`` nodes a preflight can check, and why it cannot the others.

        Raise UsageError if the launcher cannot start a preflight.
        """
        raise UsageError(
            f"vflops preflight cannot check nodes through {cls.name}",
            hint="run it in the allocation, on one of the nodes: vflops preflight",
        )

    @classmethod
    @contextmanager
    def checking(
        cls, folder: Path, site: SiteSettings, nodes: int, each: RankShare
    ) -> Iterator[Look]:
        """Check the nodes, with one task on each, which gets ``each``, until the block ends."""
        raise NotImplementedError
        yield

    @classmethod
    @contextmanager
    def controlling(cls, folder: RunFolder) -> Iterator[None]:
        """Do what nodes need while this process controls the run, for example serve its clock."""
        yield

    @classmethod
    def release(cls, folder: RunFolder) -> None:
        """Let nodes that wait for the run's jobs go: a run without a controller was cancelled."""

    @abstractmethod
    def __init__(self, folder: RunFolder, records: Sequence[JobRecord]) -> None:
        """Find those of the jobs that earlier controllers have started; start none."""

    @property
    def label(self) -> str:
        """The name of the place in the record of a job's start."""
        return self.name

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
        """Return a short description of where a job runs, or of what it waits for."""

    def ending(self, job: int) -> Ending:
        """Return how the newest attempt at a job ended; called once for each attempt."""
        return Ending()

    @abstractmethod
    def stop(self) -> None:
        """Ask every active job of the run to write a checkpoint and end."""

    @abstractmethod
    def kill(self) -> None:
        """End the jobs of the run that are still queued or running."""

    def invisible_reason(self, job: int) -> str | None:
        """Return why the run folder cannot be seen from the job's nodes; None if it can."""
        return None

    def expect_end(self) -> None:
        """Look soon whether jobs have ended, because their logs say so."""
