"""Runs jobs on SLURM, as steps of one allocation or each submitted separately."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from vflops.config.launch import LaunchSettings
from vflops.launch.placement import Node
from vflops.launch.probes import ProbePlan, Probes
from vflops.launch.scheduled_jobs import ScheduledJobs, SeparateJobs
from vflops.launch.scheduler import Scheduler
from vflops.launch.scheduler_backend import SchedulerBackend
from vflops.launch.site import SiteSettings, site_for
from vflops.launch.slurm import slurm_probes
from vflops.launch.slurm.gang_scheduled_jobs import GangScheduledJobs
from vflops.launch.slurm.slurm_allocation import AllocationScheduler, scheduler_of_run
from vflops.launch.slurm.slurm_nodes import current_allocation, node_addresses, nodes_for_ranks
from vflops.launch.slurm.slurm_scheduler import SlurmScheduler, require_slurm
from vflops.record.folder import RunFolder
from vflops.record.formats.job import JobRecord


class SlurmBackend(SchedulerBackend):
    """SLURM's queue, or the allocation that the command runs in."""

    knows_nodes = True
    can_probe = True

    def scheduler(self) -> Scheduler:
        """Return SLURM's queue; raise UsageError if SLURM is not installed here."""
        return SlurmScheduler()

    def jobs(self, folder: RunFolder, records: Sequence[JobRecord]) -> ScheduledJobs:
        """Return the jobs; in an allocation that the user already has, all of them run together."""
        settings = folder.record.settings.launch
        ranks = {record.job: record.ranks for record in records}
        scheduler = scheduler_of_run(folder, [*ranks])
        gang = settings.start == "together" or isinstance(scheduler, AllocationScheduler)
        kind = GangScheduledJobs if gang else SeparateJobs
        return kind(folder, scheduler, site_for(settings, folder.path), settings, ranks)

    def nodes(self, settings: LaunchSettings, device: str) -> list[Node]:
        """Return the nodes of the partition that are up, or those of the current allocation."""
        require_slurm()
        return nodes_for_ranks(settings)

    def node_addresses(self, site: SiteSettings) -> Sequence[str]:
        """Return addresses of nodes of the partition."""
        return node_addresses(site.partition)

    def gang_scheduled(self, settings: LaunchSettings) -> bool:
        """Whether all jobs run as steps of one allocation; in the current one they always do."""
        return settings.start == "together" or self.nodes_reserved()

    def nodes_reserved(self) -> bool:
        """Whether the command runs in an allocation."""
        return current_allocation() is not None

    def plan_probes(self, nodes: int | None, site: SiteSettings) -> ProbePlan:
        """Return how many nodes can be probed, and which of those requested are missing."""
        require_slurm()
        return slurm_probes.plan_probes(nodes, site.partition)

    def start_probes(self, folder: Path, site: SiteSettings, nodes: int, gpus: int) -> Probes:
        """Start a probe on each node; the script is kept in the folder."""
        return slurm_probes.start_probes(folder, site, nodes, gpus)
