"""Runs preflight probes as steps of an allocation."""

from __future__ import annotations

import time
from pathlib import Path

from vflops.errors import UsageError
from vflops.launch.job_script import Request, Step
from vflops.launch.probes import LOG, PROBE, ProbePlan, Probes, UnusableNode
from vflops.launch.scheduler import JobStatus, Scheduler
from vflops.launch.site import SiteSettings
from vflops.launch.slurm.sbatch_script import allocation_script
from vflops.launch.slurm.slurm_allocation import slurm_scheduler
from vflops.launch.slurm.slurm_nodes import current_allocation, list_nodes
from vflops.record.files import atomic

_TIME_LIMIT = "0:15"
"""The time limit of the allocation; a short one starts sooner."""


class SubmittedProbes:
    """Probes that were submitted as one script."""

    def __init__(self, scheduler: Scheduler, request: Request) -> None:
        self._scheduler = scheduler
        self._id = scheduler.submit(request)
        self._status = JobStatus("waiting", (), None)
        self._looked_s = float("-inf")

    def look(self) -> JobStatus:
        """Return the last known status; SLURM is queried only at intervals."""
        if time.monotonic() - self._looked_s > self._scheduler.interval_s:
            status = self._scheduler.look([self._id])[self._id]
            # SLURM drops a node that dies from the list, which would renumber the others.
            nodes = max(status.nodes, self._status.nodes, key=len)
            self._status = JobStatus(status.state, nodes, status.reason)
            self._looked_s = time.monotonic()
        return self._status

    def stop(self) -> None:
        """Cancel the script."""
        self._scheduler.cancel([self._id])


def start_probes(folder: Path, site: SiteSettings, nodes: int, gpus: int) -> Probes:
    """Start a probe on each of ``nodes`` nodes; the script is kept in the folder."""
    request = Request(
        name="vflops-preflight",
        script=folder / "preflight.sh",
        nodes=nodes,
        tasks_per_node=1,
        cores_per_task=1,
        gpus_per_task=gpus,
        output=folder / LOG,
        site=site.model_copy(update={"time_limit": _TIME_LIMIT}),
    )
    # One step per node: a node that cannot be reached does not affect the others.
    steps = [Step(node, node, 1, 1) for node in range(nodes)]
    atomic.write_text(request.script, allocation_script(request, folder, steps, PROBE))
    return SubmittedProbes(slurm_scheduler(folder), request)


def plan_probes(wanted: int | None, partition: str | None) -> ProbePlan:
    """Return how many of the ``wanted`` nodes can be probed, and the unusable nodes."""
    allocation = current_allocation()
    if allocation is not None:
        if wanted is not None and wanted > len(allocation.nodes):
            raise UsageError(
                f"--nodes {wanted}, but this allocation has {len(allocation.nodes)}",
                hint="leave --nodes out, or start outside of the allocation",
            )
        return ProbePlan(wanted or len(allocation.nodes))
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
        return ProbePlan(wanted)
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
    return ProbePlan(len(usable), tuple(missing))
