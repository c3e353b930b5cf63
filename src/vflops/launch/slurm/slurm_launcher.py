"""Runs jobs on SLURM, as steps of one allocation or each submitted separately."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from vflops.config.launch import LaunchSettings
from vflops.errors import UsageError
from vflops.launch import site
from vflops.launch.job_history import nodes_that_lost_jobs
from vflops.launch.job_script import PROBE, PROBE_LOG, Request, Step
from vflops.launch.launcher import Probes, UnusableNode
from vflops.launch.node_clock import serve_clock
from vflops.launch.node_layout import NodeLayout
from vflops.launch.placement import Node
from vflops.launch.scheduled_jobs import ScheduledJobs
from vflops.launch.scheduler import JobStatus
from vflops.launch.site import SiteSettings
from vflops.launch.slurm.sbatch_script import STOP, allocation_script, job_script
from vflops.launch.slurm.slurm_allocation import (
    AllocationScheduler,
    scheduler_of_run,
    slurm_scheduler,
)
from vflops.launch.slurm.slurm_nodes import (
    current_allocation,
    default_limit_s,
    list_nodes,
    node_addresses,
    nodes_for_ranks,
    partition_of,
)
from vflops.launch.slurm.slurm_scheduler import SlurmScheduler, require_slurm
from vflops.record.files import atomic
from vflops.record.folder import RunFolder
from vflops.record.formats.job import JobRecord

_PROBES_LIMIT = "0:15"
"""The time limit of a preflight's allocation; a short one starts sooner."""


class SlurmLauncher(ScheduledJobs):
    """SLURM's queue, or the allocation that the command runs in.

    Jobs that start together are steps of one allocation, whose script itself retries a step that
    dies; jobs that have not finished when it ends get another allocation.
    """

    name = "slurm"

    @classmethod
    def check(cls, settings: LaunchSettings) -> None:
        """Raise UsageError if SLURM is not installed here, or ``site.toml`` is wrong."""
        SlurmScheduler()
        site.site_for(settings)

    @classmethod
    def nodes(cls, settings: LaunchSettings, device: str) -> list[Node]:
        """Return the nodes of the partition that are up, or those of the current allocation."""
        require_slurm()
        return nodes_for_ranks(settings, device, current_allocation())

    @classmethod
    def gang_scheduled(cls, settings: LaunchSettings) -> bool:
        """Whether all jobs run as steps of one allocation; in the current one they always do."""
        return settings.start == "together" or cls.nodes_reserved()

    @classmethod
    def nodes_reserved(cls) -> bool:
        """Whether the command runs in an allocation."""
        return current_allocation() is not None

    @classmethod
    def check_layout(cls, nodes: Sequence[Node], ranks: int) -> None:
        """Raise UsageError if a model would have different numbers of ranks on its nodes."""
        NodeLayout(ranks, min(node.slots for node in nodes))

    @classmethod
    def plan_probes(
        cls, nodes: int | None, site: SiteSettings
    ) -> tuple[int, Sequence[UnusableNode]]:
        """Return how many nodes can be probed, and which of those requested are unusable."""
        require_slurm()
        return _plan_probes(nodes, site.partition)

    @classmethod
    def start_probes(cls, folder: Path, site: SiteSettings, nodes: int, gpus: int) -> Probes:
        """Start a probe on each node, as steps of one script that is kept in the folder."""
        request = Request(
            name="vflops-preflight",
            script=folder / "preflight.sh",
            nodes=nodes,
            tasks_per_node=1,
            cores_per_task=1,
            gpus_per_task=gpus,
            output=folder / PROBE_LOG,
            site=site.model_copy(update={"time_limit": _PROBES_LIMIT}),
        )
        # One step per node: a node that cannot be reached does not affect the others.
        steps = [Step(node, node, 1, 1) for node in range(nodes)]
        atomic.write_text(request.script, allocation_script(request, folder, steps, PROBE))
        return _submit_probes(slurm_scheduler(folder), request)

    @classmethod
    @contextmanager
    def controlling(cls, folder: RunFolder) -> Iterator[None]:
        """Serve this machine's clock to the nodes."""
        with serve_clock(folder, node_addresses(site.site_of_run(folder.path).partition)):
            yield

    def __init__(self, folder: RunFolder, records: Sequence[JobRecord]) -> None:
        jobs = {record.job: record.ranks for record in records}
        super().__init__(folder, scheduler_of_run(folder, [*jobs]), jobs)
        self._records = records
        reserved = isinstance(self._scheduler, AllocationScheduler)
        self.gang = reserved or self._settings.start == "together"

    def start(self, jobs: Mapping[int, int]) -> Collection[int]:
        """Submit the jobs: all in one allocation, once the previous one has ended, or each alone.

        The run keeps a copy of ``site.toml``.
        """
        site.copy_to_run(self._folder.path)
        return self._start_together(jobs) if self.gang else self._start_apart(jobs)

    def _limit_s(self) -> float | None:
        return self._site.time_limit_s or default_limit_s(partition_of(self._site))

    def _nodes_for_ranks(self) -> Sequence[Node]:
        scheduler = self._scheduler
        allocation = scheduler.allocation if isinstance(scheduler, AllocationScheduler) else None
        device = self._records[0].settings["train"]["device"]
        return nodes_for_ranks(self._settings, device, allocation)

    def _start_together(self, jobs: Mapping[int, int]) -> Collection[int]:
        if self.active_jobs() and not all(self._lost_nodes_of(job) for job in jobs):
            return ()
        steps = self._layout.steps(jobs)
        nodes = max(step.first_node + step.nodes for step in steps)
        number = 1 + len(list(self._folder.path.glob("allocation-*.sh")))
        folder, slots, exclude = (
            self._folder.path,
            self._layout.slots,
            nodes_that_lost_jobs(self._folder),
        )
        request = self._request(f"allocation-{number}", folder, nodes, slots, exclude, 1)
        self._submit(steps, request, partial(allocation_script, run=self._run, steps=steps))
        return jobs

    def _start_apart(self, jobs: Mapping[int, int]) -> Collection[int]:
        nodes, ranks, exclude = (
            self._layout.nodes,
            self._layout.ranks_per_node,
            nodes_that_lost_jobs(self._folder),
        )
        for job in jobs:
            folder, number = self._folder.job_file(job).parent, self._next_attempt(job)
            request = self._request(f"job-{job}", folder, nodes, ranks, exclude, number)
            script = partial(job_script, run=self._run, job=job)
            self._submit([Step(job, 0, nodes, ranks)], request, script)
        return jobs

    def _prevent_retries(self) -> None:
        # A script that waits before a retry has no step that could be signalled.
        if self.gang:
            for script in {record.script for record in self._submitted.values() if record.script}:
                atomic.write_text((self._folder.path / script).with_suffix(STOP), "")


def _submit_probes(scheduler: SlurmScheduler, request: Request) -> Probes:
    """Submit the script of a preflight; SLURM is queried only at intervals."""
    native = scheduler.submit(request)
    known = JobStatus("waiting", (), None)
    looked_s = float("-inf")

    def look() -> JobStatus:
        nonlocal known, looked_s
        if time.monotonic() - looked_s > scheduler.interval_s:
            status = scheduler.look([native])[native]
            # SLURM drops a node that dies from the list, which would renumber the others.
            known = JobStatus(status.state, max(status.nodes, known.nodes, key=len), status.reason)
            looked_s = time.monotonic()
        return known

    return Probes(look, lambda: scheduler.cancel([native]))


def _plan_probes(wanted: int | None, partition: str | None) -> tuple[int, Sequence[UnusableNode]]:
    allocation = current_allocation()
    if allocation is not None:
        if wanted is not None and wanted > len(allocation.nodes):
            raise UsageError(
                f"--nodes {wanted}, but this allocation has {len(allocation.nodes)}",
                hint="leave --nodes out, or start outside of the allocation",
            )
        return wanted or len(allocation.nodes), ()
    if wanted is None:
        raise UsageError(
            "the number of nodes to check is missing",
            hint="add --nodes N, as many as the run will use, or start in an allocation",
        )
    listed = list_nodes(partition)
    candidates = [node for node in listed if partition or node.in_default] or listed
    nodes = {node.name: node for node in candidates}.values()
    usable = [node for node in nodes if node.usable]
    if len(usable) >= wanted:
        return wanted, ()
    if not usable or len(nodes) < wanted:
        raise UsageError(
            f"SLURM has {len(usable)} nodes that a job could get, but {wanted} are requested",
            hint="see sinfo, or set another partition in site.toml",
        )
    missing = [
        UnusableNode(
            node.name, f"{node.state}: {node.reason}" if node.reason != "none" else node.state
        )
        for node in nodes
        if not node.usable
    ]
    return len(usable), missing
