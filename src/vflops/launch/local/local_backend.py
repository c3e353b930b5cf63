"""Runs jobs as processes on this machine."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from pathlib import Path

from vflops.config.launch import LaunchSettings
from vflops.errors import UsageError
from vflops.launch.backend import Backend, CancellableJobs
from vflops.launch.local import local_probes
from vflops.launch.local.agent_processes import AgentProcesses
from vflops.launch.local.launcher import LocalJobs, local_jobs
from vflops.launch.placement import THIS_MACHINE, Node
from vflops.launch.probes import ProbePlan, Probes
from vflops.launch.site import SiteSettings
from vflops.record.folder import RunFolder
from vflops.record.formats.job import JobRecord


class LocalBackend(Backend):
    """The machine that the command runs on."""

    is_this_machine = True
    knows_nodes = True
    can_probe = True

    def check(self, settings: LaunchSettings) -> None:
        """Raise UsageError for a container or several nodes, which need a scheduler."""
        if settings.container is not None:
            raise UsageError(
                f"the container {settings.container} needs a scheduler, but the jobs run locally",
                hint="add --on slurm, or start vflops itself in the container",
            )
        if (settings.nodes or 1) > 1:
            raise UsageError(
                f"--nodes {settings.nodes}, but the jobs run on this machine",
                hint="add --on slurm, or leave --nodes out",
            )

    def launcher(self, folder: RunFolder, records: Sequence[JobRecord]) -> LocalJobs:
        """Return the launcher of these jobs, each with its share of this machine."""
        return local_jobs(folder, records, waves=folder.record.settings.bagging.waves)

    def cancellable(
        self, folder: RunFolder, records: Sequence[JobRecord], *, controlled: bool
    ) -> CancellableJobs:
        """Return the agents of the run that are processes on this machine."""
        return AgentProcesses(folder, controlled=controlled)

    def nodes(self, settings: LaunchSettings, device: str) -> list[Node]:
        """Return this machine as the only node."""
        from vflops.machine.devices import rank_capacity  # imports torch

        return [Node(THIS_MACHINE, rank_capacity(device, settings.cores_per_rank)[0])]

    def nodes_reserved(self) -> bool:
        """Return True: this machine does not have to be allocated."""
        return True

    def plan_probes(self, nodes: int | None, site: SiteSettings) -> ProbePlan:
        """Return a plan for one node."""
        if nodes is not None and nodes > 1:
            raise UsageError(
                f"--nodes {nodes} --on {self.name}",
                hint="this machine is one node: leave --nodes out",
            )
        return ProbePlan(1)

    def start_probes(self, folder: Path, site: SiteSettings, nodes: int, gpus: int) -> Probes:
        """Start a probe on this machine."""
        return local_probes.start_probes(folder, site, socket.gethostname())
