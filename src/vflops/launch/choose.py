"""Where the jobs of a run go: what starts them, and the nodes that there are."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from vflops.bagging.plan import Node
from vflops.config.launch import LaunchSettings
from vflops.errors import UsageError
from vflops.launch.jobs import Launcher
from vflops.record.folder import RunFolder
from vflops.record.training import JobRecord

if TYPE_CHECKING:
    from vflops.launch.scheduled_jobs import ScheduledJobs


def launcher(folder: RunFolder, records: Sequence[JobRecord]) -> Launcher:
    """What starts the jobs of an ensemble, or one by itself, where the settings want them."""
    settings = folder.record.settings
    if settings.launch.on == "local":
        from vflops.launch.local_jobs import on_this_machine

        return on_this_machine(folder, records, waves=settings.bagging.waves)
    return scheduled(folder, records)


def scheduled(folder: RunFolder, records: Sequence[JobRecord]) -> ScheduledJobs:
    """The same where a scheduler has the nodes; in an allocation that is held all run together."""
    from vflops.launch import site
    from vflops.launch.held import HeldAllocation, slurm_of
    from vflops.launch.scheduled_jobs import JobsApart, JobsTogether
    from vflops.launch.scheduler import Scheduler

    settings = folder.record.settings.launch
    ranks = {record.job: record.ranks for record in records}
    if settings.on == "slurm":
        scheduler = slurm_of(folder, [*ranks])
        together = settings.start == "together" or isinstance(scheduler, HeldAllocation)
    else:
        scheduler, together = Scheduler(settings.on, folder.path / "psij"), False
    kind = JobsTogether if together else JobsApart
    return kind(folder, scheduler, site.find(), settings, ranks)


def nodes(
    settings: LaunchSettings, device: str, number: int | None = None, slots: int | None = None
) -> list[Node]:
    """The nodes that jobs can have: this machine, those of SLURM that are up, or as described.

    ``number`` nodes of ``slots`` ranks are those of a machine that is not here.
    """
    slots = slots or (None if settings.on == "local" else settings.ranks_per_node)
    if number is not None and slots is None:
        raise UsageError(
            f"--nodes {number} without --slots", cure="say how many ranks a node takes"
        )
    if slots is not None and settings.on == "local" and number is None:
        raise UsageError(f"--slots {slots} without --nodes", cure="say how many nodes there are")
    if number is not None and slots is not None:
        return [Node(f"node {each}", slots) for each in range(1, number + 1)]
    if settings.on == "local":
        from vflops.train.placement import here

        return [Node("this machine", here(device, settings.cores_per_rank)[0])]
    if settings.on == "slurm":
        return [Node(each.name, slots or each.slots) for each in _slurm_nodes(settings)]
    raise UsageError(
        f"the nodes of {settings.on} are not known here", cure="say them: --nodes N --slots K"
    )


def refuse_misshapen(settings: LaunchSettings, places: Sequence[Node], ranks: int) -> None:
    """Refuse what a scheduler would not be asked for: a model in parts of several sizes."""
    if settings.on != "local":
        from vflops.launch.scheduled_jobs import Shape

        Shape(ranks, min(node.slots for node in places))


def _slurm_nodes(settings: LaunchSettings) -> list[Node]:
    """Those of the site's partition; of an allocation that is held already, its own."""
    from vflops.launch import site
    from vflops.launch.scheduler import Scheduler, held_allocation, slurm_nodes

    Scheduler("slurm")  # says what to do where there is none
    partition, held = site.find().partition, held_allocation()
    found: dict[str, Node] = {}  # a node is listed once for each of its partitions
    for node in slurm_nodes(partition):
        slots = _slots(settings, node.cpus, node.resources)
        if slots and node.usable and (held is None or node.name in held.nodes):
            found[node.name] = Node(node.name, slots)
    if not found:
        raise UsageError(
            "SLURM has no node that could take a rank"
            + (f" in the partition {partition}" if partition else ""),
            cure="look at sinfo; a rank takes launch.cores_per_rank and launch.gpus_per_rank",
        )
    return list(found.values())


def _slots(settings: LaunchSettings, cpus: int, resources: str) -> int:
    """Ranks that a node takes; its GPUs are in ``gpu:a100:4(S:0-1),…``."""
    if settings.ranks_per_node is not None:
        return settings.ranks_per_node
    by_cores = cpus // (settings.cores_per_rank or 1)
    if not settings.gpus_per_rank:
        return by_cores
    gpus = sum(int(count) for count in re.findall(r"gpu:(?:[^:,(]+:)?(\d+)", resources))
    return min(gpus // settings.gpus_per_rank, by_cores)
