"""What SLURM's nodes offer to ranks: those of a partition, or those of the user's allocation."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

from vflops.config.launch import LaunchSettings
from vflops.errors import UsageError
from vflops.launch.placement import Node, NodeResources
from vflops.launch.site import FILE, SiteSettings, site_for
from vflops.launch.sizing import sized
from vflops.launch.slurm.commands import partition_hint, query, run_command
from vflops.launch.slurm.slurm_nodes import Allocation, SlurmNode, expand_nodes, list_nodes

_ON_CPUS = "to train on CPUs add --set train.device=cpu --set launch.gpus_per_rank=0"


def nodes_for_ranks(
    settings: LaunchSettings, device: str, allocation: Allocation | None
) -> list[Node]:
    """Return the nodes that can take ranks, with their number of slots.

    They are the nodes of the allocation, or else those of the site's partition.
    """
    site = site_for(settings)
    place = _place(site, allocation)
    resources = node_resources(settings, device, allocation)
    nodes = sized(resources, settings, device)
    with_gpus = [item.name for item in resources if item.gpus]
    if device == "cpu" and settings.gpus_per_rank is None and len(with_gpus) == len(resources) > 0:
        raise UsageError(
            f"the nodes of {place} have GPUs, but train.device is cpu",
            hint="leave train.device out; to train on their CPUs add --set launch.gpus_per_rank=0,"
            " to try the layout of GPUs without using them --set launch.gpus_per_rank=1",
        )
    if device not in ("auto", "cpu") and not with_gpus:
        raise UsageError(
            f"train.device is {device}, but SLURM lists no GPU in {place}",
            hint="set another partition in site.toml, or leave train.device out; sinfo -o '%P %G'"
            " lists the GPUs of each partition",
        )
    if not nodes:
        raise UsageError(
            f"SLURM has no node that could take a rank in {place}",
            hint="see sinfo; a rank needs launch.cores_per_rank and launch.gpus_per_rank",
        )
    if settings.nodes is not None and len(nodes) < settings.nodes:
        raise UsageError(
            f"--nodes {settings.nodes}, but {place} has {len(nodes)} that could take a rank",
            hint=f"use --nodes {len(nodes)} or fewer; sinfo lists the states of the others",
        )
    return nodes


def node_resources(
    settings: LaunchSettings, device: str, allocation: Allocation | None
) -> list[NodeResources]:
    """Return what the nodes that are up offer: those of the allocation, or of the partition.

    Raise UsageError if they have GPUs, but none that the ranks would get.
    """
    site = site_for(settings)
    listed = _listed_nodes(site, allocation)
    found = _offered([node for node in listed if node.usable], site, allocation)
    if _uses_gpus(settings, device) and not any(item.gpus for item in found):
        _refuse_cpus_of_gpu_nodes(listed, site, allocation)
    return found


def nodes_with_room(
    settings: LaunchSettings,
    site: SiteSettings,
    device: str,
    allocation: Allocation | None,
    ranks: int,
) -> list[Node]:
    """Return the nodes that can take so many ranks each: those that are up or, if none is, all.

    A run that has begun is not refused if nodes go down: its jobs wait for them in the queue. Raise
    UsageError if no node has room, up or not.
    """
    listed = _listed_nodes(site, allocation)
    need_gpus = _uses_gpus(settings, device) and any(gpus_of(node.resources) for node in listed)
    for nodes in ([node for node in listed if node.usable], listed):
        resources = _offered(nodes, site, allocation)
        if need_gpus and not any(item.gpus for item in resources):
            continue  # its CPUs must not replace the GPUs of the others
        roomy = [node for node in sized(resources, settings, device) if node.slots >= ranks]
        if roomy:
            return roomy
    what = "1 rank" if ranks == 1 else f"{ranks} ranks"
    raise UsageError(
        f"no node of {_place(site, allocation)} has room for {what}, up or not",
        hint="sinfo -N -o '%N %c %m %G %T' lists what the nodes have",
    )


def gpus_of(resources: str) -> dict[str, int]:
    """Return the number of GPUs of each type in SLURM's generic resources; ``""`` has no type."""
    counts: dict[str, int] = {}
    for kind, number in re.findall(r"(?:^|,)gpu:(?:([^:,(]+):)?(\d+)", resources):
        counts[kind] = counts.get(kind, 0) + int(number)
    return counts


def _place(site: SiteSettings, allocation: Allocation | None) -> str:
    if allocation is not None:
        return f"the allocation {allocation.job_id}"
    partition = site.used_partition
    return f"the partition {partition}" if partition else "the default partition"


def _uses_gpus(settings: LaunchSettings, device: str) -> bool:
    """Whether ranks use GPUs if the nodes have any."""
    return settings.gpus_per_rank != 0 and (device != "cpu" or settings.gpus_per_rank is not None)


def _listed_nodes(site: SiteSettings, allocation: Allocation | None) -> list[SlurmNode]:
    """Return the nodes of the allocation, or else of the partition, up or not."""
    if allocation is None:
        return _nodes_of_partition(site.used_partition)
    nodes = {node.name: node for node in list_nodes(None) if node.name in allocation.nodes}
    return [*nodes.values()]


def _offered(
    nodes: Sequence[SlurmNode], site: SiteSettings, allocation: Allocation | None
) -> list[NodeResources]:
    """Return what the nodes offer to the run's jobs."""
    if allocation is None:
        return _listed_resources(nodes, site.gpu_type)
    return _allocated_resources(allocation, {node.name for node in nodes}, site.gpu_type)


def _nodes_of_partition(partition: str | None) -> list[SlurmNode]:
    """Return each node of a partition once, even if it is in several."""
    listed = list_nodes(partition)
    if partition and not listed:
        raise _no_partition(partition)
    # Jobs that name no partition go to the default one, if the site has one.
    default = partition is None and any(node.in_default for node in listed)
    nodes = {node.name: node for node in listed if node.in_default or not default}
    return [*nodes.values()]


def _listed_resources(nodes: Sequence[SlurmNode], gpu_type: str | None) -> list[NodeResources]:
    gpus = {node.name: gpus_of(node.resources) for node in nodes}
    kind = gpu_type or _most_frequent_type(gpus.values())
    return [
        _resources(node.name, node.cpus, node.memory_mb, gpus[node.name], kind) for node in nodes
    ]


def _allocated_resources(
    allocation: Allocation, names: Collection[str], gpu_type: str | None
) -> list[NodeResources]:
    command = ["scontrol", "show", "job", "--details", "--oneliner", allocation.job_id]
    done = query(command)
    pattern = r"Nodes=(\S+) CPU_IDs=(\S+) Mem=(\d+) GRES=(\S*)"
    found = {}
    for nodes, cpus, memory, gres in re.findall(pattern, done.stdout):
        cores = sum(
            int(last or first) - int(first) + 1
            for first, last in re.findall(r"(\d+)(?:-(\d+))?", cpus)
        )
        gpus = gpus_of(gres)
        kind = gpu_type or _most_frequent_type([gpus])
        for name in expand_nodes(nodes):
            found[name] = _resources(name, cores, int(memory), gpus, kind)
    return [found[name] for name in allocation.nodes if name in found and name in names]


def _most_frequent_type(gpus: Iterable[Mapping[str, int]]) -> str | None:
    """Return the type of GPU that the nodes have most of; None if none has a type."""
    counts = sum((Counter(owned) for owned in gpus), Counter())
    typed = [(number, kind) for kind, number in counts.items() if kind]
    return max(typed)[1] if typed else None


def _resources(
    name: str, cores: int, memory_mb: int, gpus: Mapping[str, int], gpu_type: str | None
) -> NodeResources:
    """Return the resources of a node; of its GPUs those of one type, if they have types."""
    number = gpus.get("" if gpu_type is None else gpu_type, 0)
    # SLURM's default for the memory is 1 MB: the site does not manage it.
    return NodeResources(
        name, cores, memory_mb if memory_mb > 1 else None, number, gpu_type if number else None
    )


def _refuse_cpus_of_gpu_nodes(
    listed: Sequence[SlurmNode], site: SiteSettings, allocation: Allocation | None
) -> None:
    """Raise UsageError if training would use the CPUs of nodes that have GPUs.

    ``gpu_type`` says that the site has GPUs, even if SLURM lists none.
    """
    place, kind = _place(site, allocation), site.gpu_type
    gpus = [gpus_of(node.resources) for node in listed]
    types = sorted({name for owned in gpus for name in owned})
    if kind is not None and kind not in types:
        known = " or ".join(filter(None, types))
        has = f"only GPUs of type {known}" if known else "GPUs without a type"
        cure = f"set gpu_type to {known}" if known else "leave gpu_type out"
        if not types:
            has, cure = "no GPU", f"set another partition in {FILE}, or leave gpu_type out"
        raise UsageError(
            f"gpu_type is {kind} in {FILE}, but SLURM lists {has} in {place}",
            hint=f"{cure}; {_ON_CPUS}",
        )
    if not types:
        return
    if allocation is None:
        raise UsageError(
            f"the nodes with GPUs in {place} cannot be used now",
            hint=f"sinfo lists their states; {_ON_CPUS}",
        )
    each = max(owned.get(kind, 0) if kind else sum(owned.values()) for owned in gpus)
    what = f"{kind} GPUs" if kind else "GPUs"
    raise UsageError(
        f"{place} has none of the {each} {what} of its nodes",
        hint=f"allocate them: salloc --gpus-per-node={each}; {_ON_CPUS}",
    )


def _no_partition(name: str) -> UsageError:
    done = run_command(["sbatch", "--test-only", f"--partition={name}", "--wrap=true"])
    message = (done.stderr.strip().splitlines() or ["no such partition"])[-1].rpartition(": ")[2]
    return UsageError(f"slurm: {message} ({name})", hint=partition_hint())
