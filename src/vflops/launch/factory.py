"""Where the jobs of a run go: what starts them, and the nodes that there are."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from vflops.config.launch import LaunchSettings
from vflops.config.settings import Settings
from vflops.errors import UsageError
from vflops.launch.interface import Launcher
from vflops.launch.placement import Node, capacity
from vflops.record.folder import RunFolder
from vflops.record.formats.job import JobRecord

if TYPE_CHECKING:
    from vflops.launch.scheduled_jobs import ScheduledJobs
    from vflops.launch.site import SiteSettings

_GONE = ("down", "drain", "error", "fail", "future", "inval", "unk")
"""What the states of nodes begin with that no job gets, however long it waits."""


def launcher(folder: RunFolder, records: Sequence[JobRecord]) -> Launcher:
    """What starts the jobs of an ensemble, or one by itself, where the settings want them."""
    settings = folder.record.settings
    if settings.launch.on == "local":
        from vflops.launch.local.launcher import on_this_machine

        return on_this_machine(folder, records, waves=settings.bagging.waves)
    from vflops.launch import site

    site.keep(folder.path)
    return scheduled(folder, records)


def scheduled(folder: RunFolder, records: Sequence[JobRecord]) -> ScheduledJobs:
    """The same where a scheduler has the nodes; in an allocation that is held all run together."""
    from vflops.launch.scheduled_jobs import JobsApart, JobsTogether
    from vflops.launch.scheduler import Scheduler
    from vflops.launch.slurm.slurm_allocation import HeldAllocation, scheduler_for

    settings = folder.record.settings.launch
    ranks = {record.job: record.ranks for record in records}
    if settings.on == "slurm":
        scheduler = scheduler_for(folder, [*ranks])
        together = settings.start == "together" or isinstance(scheduler, HeldAllocation)
    else:
        scheduler, together = Scheduler(settings.on, folder.path / "psij"), False
    kind = JobsTogether if together else JobsApart
    return kind(folder, scheduler, site_of(settings, folder.path), settings, ranks)


def site_of(settings: LaunchSettings, run: Path | None = None) -> SiteSettings:
    """The facts of the site, with the image that the settings want in the place of its own.

    ``run``: a run folder, which may keep those of its first launch.
    """
    from vflops.launch import site

    found = site.find() if run is None else site.of_run(run)
    if settings.container is None:
        return found
    about = found.container.model_dump() if found.container else {}
    own = site.ContainerSettings.model_validate({**about, "image": settings.container})
    return found.model_copy(update={"container": own})


def check_scheduler(settings: LaunchSettings) -> None:
    """Refuse a scheduler that is not here, and a wrong ``site.toml``."""
    from vflops.launch.scheduler import Scheduler

    Scheduler(settings.on)
    site_of(settings)


def room(settings: LaunchSettings, device: str, ranks: int) -> list[Node]:
    """The nodes for models of ``ranks`` ranks, with the slots that a run really asks for.

    One allocation of all models has the same part of each node: ``launch.ranks_per_node`` ranks,
    else those of one model; nodes that are smaller have no place in it.
    """
    there = nodes(settings, device)
    if settings.on == "local" or not starts_together(settings):
        return there
    slots = settings.ranks_per_node or ranks
    found = [Node(node.name, slots) for node in there if node.slots >= slots]
    if not found:
        most = max(node.slots for node in there)
        raise UsageError(
            f"no node takes {slots} ranks: the largest takes {most}",
            hint=f"take --ranks {most}, or --set launch.ranks_per_node={most} for models that span"
            " nodes",
        )
    return found


def starts_together(settings: LaunchSettings) -> bool:
    """Whether all jobs are steps of one allocation, as they are in one that is held."""
    from vflops.launch.scheduler import held_allocation

    return settings.on == "slurm" and (
        settings.start == "together" or held_allocation() is not None
    )


def waves(settings: Settings, records: Sequence[JobRecord]) -> list[Sequence[JobRecord]]:
    """The jobs of one allocation after the other; without waves, and where each job is started
    when there is room for it, all of them."""
    if not settings.bagging.waves or not starts_together(settings.launch):
        return [records]
    ranks, device = records[0].ranks, records[0].settings["train"]["device"]
    fit = max(capacity(room(settings.launch, device, ranks), ranks, len(records)), 1)
    return [records[start : start + fit] for start in range(0, len(records), fit)]


def nodes(
    settings: LaunchSettings, device: str, number: int | None = None, slots: int | None = None
) -> list[Node]:
    """The nodes that jobs can have: this machine, those of SLURM that are up, or as described.

    ``number`` nodes of ``slots`` ranks are those of a machine that is not here.
    """
    slots = slots or (None if settings.on == "local" else settings.ranks_per_node)
    if number is not None and slots is None:
        raise UsageError(
            f"--nodes {number} without --slots", hint="say how many ranks a node takes"
        )
    if slots is not None and settings.on == "local" and number is None:
        raise UsageError(f"--slots {slots} without --nodes", hint="say how many nodes there are")
    if number is not None and slots is not None:
        return [Node(f"node {each}", slots) for each in range(1, number + 1)]
    if settings.on == "local":
        from vflops.machine.devices import rank_capacity

        return [Node("this machine", rank_capacity(device, settings.cores_per_rank)[0])]
    if settings.on == "slurm":
        return [Node(each.name, slots or each.slots) for each in _slurm_nodes(settings)]
    raise UsageError(
        f"the nodes of {settings.on} are not known here", hint="say them: --nodes N --slots K"
    )


def refuse_misshapen(settings: LaunchSettings, places: Sequence[Node], ranks: int) -> None:
    """Refuse what a scheduler would not be asked for: a model in parts of several sizes."""
    if settings.on != "local":
        from vflops.launch.node_layout import Shape

        Shape(ranks, min(node.slots for node in places))


def _slurm_nodes(settings: LaunchSettings) -> list[Node]:
    """Those of the site's partition; of an allocation that is held already, its own."""
    from vflops.launch.scheduler import Scheduler, held_allocation, slurm_nodes

    Scheduler("slurm")  # says what to do where there is none
    held = held_allocation()
    partition = _partition(settings) if held is None else None
    listed = slurm_nodes(partition)
    if partition and not listed:
        raise _no_partition(partition)
    cpus = dict(zip(held.nodes, held.cpus_per_node, strict=False)) if held else {}
    # Without a partition jobs go to the default one, where the site has one.
    default = partition is None and held is None and any(node.in_default for node in listed)
    found: dict[str, Node] = {}  # a node is listed once for each of its partitions
    for node in listed:
        if node.state.startswith(_GONE) or node.state.endswith("*"):  # *: it does not answer
            continue
        if (held and node.name not in held.nodes) or (default and not node.in_default):
            continue
        slots = _slots(settings, cpus.get(node.name, node.cpus), node.resources)
        if slots:
            found[node.name] = Node(node.name, slots)
    if not found:
        raise UsageError(
            "SLURM has no node that could take a rank"
            + (f" in the partition {partition}" if partition else ""),
            hint="look at sinfo; a rank takes launch.cores_per_rank and launch.gpus_per_rank",
        )
    return list(found.values())


def _partition(settings: LaunchSettings) -> str | None:
    """The site's, or what its own options of sbatch say, which win."""
    site = site_of(settings)
    said = re.findall(r"(?m)^(?:--partition[= ]|-p ?)(\S+)", "\n".join(site.directives))
    return said[-1] if said else site.partition


def _no_partition(name: str) -> UsageError:
    from vflops.launch.slurm.commands import ask

    done = ask(["sbatch", "--test-only", f"--partition={name}", "--wrap=true"])
    words = (done.stderr.strip().splitlines() or ["no such partition"])[-1].rpartition(": ")[2]
    names = sorted(set(ask(["sinfo", "--noheader", "-o", "%R"]).stdout.split()))
    return UsageError(
        f"slurm: {words} ({name})",
        hint=f"set partition in site.toml to one of: {', '.join(names)} (sinfo lists them)",
    )


def _slots(settings: LaunchSettings, cpus: int, resources: str) -> int:
    """Ranks that a node takes; its GPUs are in ``gpu:a100:4(S:0-1),…``.

    ``launch.ranks_per_node`` are all or none: a smaller node is never given to a run.
    """
    slots = cpus // (settings.cores_per_rank or 1)
    if settings.gpus_per_rank:
        gpus = sum(int(count) for count in re.findall(r"gpu:(?:[^:,(]+:)?(\d+)", resources))
        slots = min(gpus // settings.gpus_per_rank, slots)
    wanted = settings.ranks_per_node
    return slots if wanted is None else wanted if wanted <= slots else 0
