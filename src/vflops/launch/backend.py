"""The interface of a back end, on which jobs run; ``launch.on`` chooses it.

A back end is one folder under ``vflops.launch`` and one line in ``vflops.launch.factory``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import ClassVar, Protocol

from vflops.config.launch import LaunchSettings
from vflops.errors import UsageError
from vflops.launch.interface import Launcher
from vflops.launch.placement import Node
from vflops.launch.probes import ProbePlan, Probes
from vflops.launch.site import SiteSettings
from vflops.record.folder import RunFolder
from vflops.record.formats.job import JobRecord


class CancellableJobs(Protocol):
    """The jobs of a run that is being cancelled."""

    def active_jobs(self) -> Collection[int]:
        """Return the jobs that are queued or running."""

    def stop(self) -> None:
        """Ask each job to write a checkpoint and end, but only once: asking twice kills it."""

    def kill(self) -> None:
        """End the jobs."""

    def controller_gone(self) -> None:
        """Let ``stop`` ask all jobs, because the controller ended without asking them."""


class Backend(ABC):
    """Where jobs run: on this machine, or on the nodes of a scheduler."""

    is_this_machine: ClassVar[bool] = False
    """Whether jobs are processes on the machine that the command runs on."""
    knows_nodes: ClassVar[bool] = False
    """Whether ``nodes`` can list the nodes."""
    can_probe: ClassVar[bool] = False
    """Whether ``vflops preflight`` can check the nodes."""

    def __init__(self, name: str) -> None:
        """``name`` is the value of ``launch.on``."""
        self.name = name

    @abstractmethod
    def check(self, settings: LaunchSettings) -> None:
        """Raise UsageError if no job could be started with these settings."""

    @abstractmethod
    def launcher(self, folder: RunFolder, records: Sequence[JobRecord]) -> Launcher:
        """Return the launcher for these jobs of a run."""

    @abstractmethod
    def cancellable(
        self, folder: RunFolder, records: Sequence[JobRecord], *, controlled: bool
    ) -> CancellableJobs:
        """Return the jobs of a run that is being cancelled.

        ``controlled`` says that a live controller will itself ask them to end.
        """

    def nodes(self, settings: LaunchSettings, device: str) -> list[Node]:
        """Return the nodes that jobs can use, with the number of ranks that each can take."""
        raise UsageError(
            f"the nodes of {self.name} are not known here",
            hint="describe them with --nodes N --slots K",
        )

    def gang_scheduled(self, settings: LaunchSettings) -> bool:
        """Whether all jobs run as steps of one allocation."""
        return False

    def nodes_reserved(self) -> bool:
        """Whether the nodes are already reserved for the user, instead of shared by a queue."""
        return False

    def node_addresses(self, site: SiteSettings) -> Sequence[str]:
        """Return names or addresses of nodes that jobs may get; empty if they are not known."""
        return ()

    def check_layout(self, nodes: Sequence[Node], ranks: int) -> None:  # noqa: B027  (optional)
        """Raise UsageError if a model of ``ranks`` ranks cannot be laid out on these nodes."""

    def plan_probes(self, nodes: int | None, site: SiteSettings) -> ProbePlan:
        """Return how many of ``nodes`` nodes a preflight can check, and which are unusable."""
        raise NotImplementedError(f"no preflight on {self.name}")

    def start_probes(self, folder: Path, site: SiteSettings, nodes: int, gpus: int) -> Probes:
        """Start a probe on each of the nodes, with ``gpus`` GPUs each."""
        raise NotImplementedError(f"no preflight on {self.name}")
