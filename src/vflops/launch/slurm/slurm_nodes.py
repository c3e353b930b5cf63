"""The nodes that SLURM lists, and those of the allocation that this process runs in."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from vflops.config.launch import LaunchSettings
from vflops.errors import UsageError
from vflops.launch.placement import Node, NodeResources
from vflops.launch.site import SiteSettings, site_for
from vflops.launch.sizing import sized
from vflops.launch.slurm.commands import command_failed, partition_hint, query, run_command

_UNUSABLE = ("down", "drain", "error", "fail", "future", "inval", "unk")
"""Prefixes of the states in which a node is never allocated, however long a job waits."""
_LOST = ("down", "error", "fail")
"""The same for states in which its jobs are lost, too."""
_MAX_ADDRESSES = 32
"""Nodes whose names are looked up; a cluster has few networks, but may have thousands of nodes."""


@dataclass(frozen=True)
class SlurmNode:
    """A node as ``sinfo`` lists it."""

    name: str
    cpus: int
    memory_mb: int
    resources: str
    """Generic resources, such as GPUs: ``gpu:a100:4(S:0-1),…``."""
    state: str
    reason: str
    in_default: bool
    """Whether the node is in the default partition, for jobs that name none."""

    @property
    def usable(self) -> bool:
        """Whether a job can get the node, now or later.

        A node that is reserved, in maintenance or powered down is usable, because it comes back.
        """
        responds = not self.state.endswith("*")
        return responds and not self.state.startswith(_UNUSABLE)


@dataclass(frozen=True)
class Allocation:
    """An allocation of nodes that the user already has."""

    job_id: str
    nodes: tuple[str, ...]


def list_nodes(partition: str | None) -> list[SlurmNode]:
    """Return the nodes of a partition, or of all partitions.

    A node is listed once for each of its partitions.
    """
    command = ["sinfo", "--noheader", "--Node", "--format=%N|%c|%m|%G|%T|%P|%E"]
    done = query([*command, *([f"--partition={partition}"] if partition else [])])
    if done.returncode != 0:
        raise command_failed("sinfo", done.stderr)
    nodes = []
    for line in done.stdout.splitlines():
        name, cpus, memory, resources, state, node_partition, reason = line.strip().split("|", 6)
        in_default = node_partition.endswith("*")
        memory_mb = int(memory.rstrip("+"))
        nodes.append(SlurmNode(name, int(cpus), memory_mb, resources, state, reason, in_default))
    return nodes


def lost_nodes(names: Collection[str]) -> dict[str, str]:
    """Return those of the nodes that SLURM has found to be down or silent, with what it says."""
    command = ["sinfo", "--noheader", "--Node", f"--nodes={','.join(names)}", "--format=%N|%T|%E"]
    done = run_command(command)
    lost = {}
    for line in done.stdout.splitlines() if done.returncode == 0 else ():
        name, state, reason = line.strip().split("|", 2)
        if state.startswith(_LOST):
            lost[name] = f"{name} is {state.rstrip('*')}: {reason}"
        elif state.endswith("*"):
            lost[name] = f"{name} does not respond to SLURM ({state.rstrip('*')})"
    return lost


def node_addresses(partition: str | None) -> list[str]:
    """Return the addresses of some nodes of a partition, or of all; none if SLURM says none."""
    command = ["sinfo", "--noheader", "--Node", "--format=%o"]
    done = run_command([*command, *([f"--partition={partition}"] if partition else [])])
    addresses = list(dict.fromkeys(done.stdout.split())) if done.returncode == 0 else []
    return addresses[:: -(-len(addresses) // _MAX_ADDRESSES) or 1]


def current_allocation() -> Allocation | None:
    """Return the SLURM allocation that this process runs in (``salloc``, ``sbatch``), if any."""
    job, nodes = os.environ.get("SLURM_JOB_ID"), os.environ.get("SLURM_JOB_NODELIST")
    if not job or not nodes:
        return None
    return Allocation(job, tuple(expand_nodes(nodes)))


def expand_nodes(nodes: str) -> Iterator[str]:
    """Yield the names in SLURM's node list: ``n[1-3,07],m4`` is n1, n2, n3, n07 and m4."""
    for part in re.findall(r"(?:[^,\[]|\[[^\]]*\])+", nodes):
        head, bracket, rest = part.partition("[")
        inside, _, tail = rest.partition("]")
        if not bracket:
            yield head
            continue
        for span in inside.split(","):
            first, _, last = span.partition("-")
            for number in range(int(first), int(last or first) + 1):
                yield from expand_nodes(f"{head}{number:0{len(first)}}{tail}")


def node_resources(settings: LaunchSettings, allocation: Allocation | None) -> list[NodeResources]:
    """Return what the nodes that are up offer: those of the allocation, or of the partition."""
    site = site_for(settings)
    if allocation is not None:
        return allocated_resources(allocation, site.gpu_type)
    partition = partition_of(site)
    listed = list_nodes(partition)
    if partition and not listed:
        raise _no_partition(partition)
    # Jobs that name no partition go to the default one, if the site has one.
    default = partition is None and any(node.in_default for node in listed)
    usable = {  # a node is listed once for each of its partitions
        node.name: node for node in listed if node.usable and (node.in_default or not default)
    }
    gpus = {name: gpus_of(node.resources) for name, node in usable.items()}
    kind = site.gpu_type or _most_frequent_type(gpus.values())
    return [
        _resources(name, node.cpus, node.memory_mb, gpus[name], kind)
        for name, node in usable.items()
    ]


def allocated_resources(allocation: Allocation, gpu_type: str | None) -> list[NodeResources]:
    """Return what an allocation has on each of its nodes that are up."""
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
    down = {node.name for node in list_nodes(None) if not node.usable}
    return [found[name] for name in allocation.nodes if name in found and name not in down]


def gpus_of(resources: str) -> dict[str, int]:
    """Return the number of GPUs of each type in SLURM's generic resources; ``""`` has no type."""
    counts: dict[str, int] = {}
    for kind, number in re.findall(r"(?:^|,)gpu:(?:([^:,(]+):)?(\d+)", resources):
        counts[kind] = counts.get(kind, 0) + int(number)
    return counts


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


def nodes_for_ranks(
    settings: LaunchSettings, device: str, allocation: Allocation | None
) -> list[Node]:
    """Return the nodes that can take ranks, with their number of slots.

    They are the nodes of the allocation, or else those of the site's partition.
    """
    site = site_for(settings)
    partition = partition_of(site)
    place = f"the partition {partition}" if partition else "the default partition"
    if allocation is not None:
        place = f"the allocation {allocation.job_id}"
    resources = node_resources(settings, allocation)
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


def nodes_to_check(wanted: int | None, partition: str | None) -> tuple[int, dict[str, str]]:
    """Return how many nodes a preflight can check, and why it cannot check the others."""
    allocation = current_allocation()
    if allocation is not None:
        if wanted is not None and wanted > len(allocation.nodes):
            raise UsageError(
                f"--nodes {wanted}, but this allocation has {len(allocation.nodes)}",
                hint="leave --nodes out, or start outside of the allocation",
            )
        return wanted or len(allocation.nodes), {}
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
        return wanted, {}
    if not usable or len(nodes) < wanted:
        raise UsageError(
            f"SLURM has {len(usable)} nodes that a job could get, but {wanted} are requested",
            hint="see sinfo, or set another partition in site.toml",
        )
    return len(usable), {
        node.name: node.state if node.reason == "none" else f"{node.state}: {node.reason}"
        for node in nodes
        if not node.usable
    }


def partition_of(site: SiteSettings) -> str | None:
    """Return the site's partition; a ``--partition`` in its directives takes precedence."""
    names = re.findall(r"(?m)^(?:--partition[= ]|-p ?)(\S+)", "\n".join(site.directives))
    return names[-1] if names else site.partition


def default_limit_s(partition: str | None) -> float | None:
    """Return the time limit of a job that sets none; None if it is not known or there is none."""
    done = run_command(["sinfo", "--noheader", "--format=%P|%L|%l"])
    for line in done.stdout.splitlines() if done.returncode == 0 else ():
        name, default, longest = line.strip().split("|")
        if name.rstrip("*") == partition or (partition is None and name.endswith("*")):
            return _seconds(longest if default == "n/a" else default)
    return None


def _seconds(limit: str) -> float | None:
    """Return the seconds of ``[days-][[hours:]minutes:]seconds``; None for ``infinite``."""
    match = re.fullmatch(r"(?:(\d+)-)?(?:(?:(\d+):)?(\d+):)?(\d+)", limit)
    if match is None:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def _no_partition(name: str) -> UsageError:
    done = run_command(["sbatch", "--test-only", f"--partition={name}", "--wrap=true"])
    message = (done.stderr.strip().splitlines() or ["no such partition"])[-1].rpartition(": ")[2]
    return UsageError(f"slurm: {message} ({name})", hint=partition_hint())
