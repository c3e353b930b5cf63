"""The nodes that SLURM lists, and those of the allocation that this process runs in."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass

from vflops.config.launch import LaunchSettings
from vflops.errors import UsageError
from vflops.launch.placement import Node
from vflops.launch.site import site_for
from vflops.launch.slurm.commands import command_failed, partition_hint, query, run_command

_UNUSABLE = ("down", "drain", "error", "fail", "future", "inval", "unk")
"""Prefixes of the states in which a node is never allocated, however long a job waits."""
_MAX_ADDRESSES = 32
"""Nodes whose names are looked up; a cluster has few networks, but may have thousands of nodes."""


@dataclass(frozen=True)
class SlurmNode:
    """A node as ``sinfo`` lists it."""

    name: str
    cpus: int
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
    cpus_per_node: tuple[int, ...]


def list_nodes(partition: str | None) -> list[SlurmNode]:
    """Return the nodes of a partition, or of all partitions.

    A node is listed once for each of its partitions.
    """
    command = ["sinfo", "--noheader", "--Node", "--format=%N|%c|%G|%T|%P|%E"]
    done = query([*command, *([f"--partition={partition}"] if partition else [])])
    if done.returncode != 0:
        raise command_failed("sinfo", done.stderr)
    nodes = []
    for line in done.stdout.splitlines():
        name, cpus, resources, state, node_partition, reason = line.strip().split("|", 5)
        in_default = node_partition.endswith("*")
        nodes.append(SlurmNode(name, int(cpus), resources, state, reason, in_default))
    return nodes


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
    cpus: list[int] = []
    for part in os.environ.get("SLURM_JOB_CPUS_PER_NODE", "").split(","):
        if match := re.fullmatch(r"(\d+)(?:\(x(\d+)\))?", part):
            cpus += [int(match[1])] * int(match[2] or 1)
    return Allocation(job, tuple(expand_nodes(nodes)), tuple(cpus))


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


def nodes_for_ranks(settings: LaunchSettings) -> list[Node]:
    """Return the nodes that can run ranks, with their number of slots.

    They are the nodes of the current allocation, or else those of the site's partition.
    """
    allocation = current_allocation()
    partition = _partition(settings) if allocation is None else None
    listed = list_nodes(partition)
    if partition and not listed:
        raise _no_partition(partition)
    cpus: dict[str, int] = {}
    if allocation is not None:
        cpus = dict(zip(allocation.nodes, allocation.cpus_per_node, strict=False))
    # Jobs that name no partition go to the default one, if the site has one.
    default = partition is None and allocation is None and any(node.in_default for node in listed)
    nodes: dict[str, Node] = {}  # a node is listed once for each of its partitions
    for node in listed:
        if not node.usable:
            continue
        if allocation is not None and node.name not in allocation.nodes:
            continue
        if default and not node.in_default:
            continue
        slots = _slots(settings, cpus.get(node.name, node.cpus), node.resources)
        if slots:
            nodes[node.name] = Node(node.name, slots)
    if not nodes:
        raise UsageError(
            "SLURM has no node that could take a rank"
            + (f" in the partition {partition}" if partition else ""),
            hint="see sinfo; a rank needs launch.cores_per_rank and launch.gpus_per_rank",
        )
    if settings.nodes is not None and len(nodes) < settings.nodes:
        place = f"the partition {partition}" if partition else "the default partition"
        place = place if allocation is None else f"the allocation {allocation.job_id}"
        raise UsageError(
            f"--nodes {settings.nodes}, but {place} has {len(nodes)} that could take a rank",
            hint=f"use --nodes {len(nodes)} or fewer; sinfo lists the states of the others",
        )
    return list(nodes.values())[: settings.nodes]


def _partition(settings: LaunchSettings) -> str | None:
    """Return the site's partition; a ``--partition`` in its directives takes precedence."""
    site = site_for(settings)
    names = re.findall(r"(?m)^(?:--partition[= ]|-p ?)(\S+)", "\n".join(site.directives))
    return names[-1] if names else site.partition


def _no_partition(name: str) -> UsageError:
    done = run_command(["sbatch", "--test-only", f"--partition={name}", "--wrap=true"])
    message = (done.stderr.strip().splitlines() or ["no such partition"])[-1].rpartition(": ")[2]
    return UsageError(f"slurm: {message} ({name})", hint=partition_hint())


def _slots(settings: LaunchSettings, cpus: int, resources: str) -> int:
    """Return the number of ranks that a node can take.

    If ``launch.ranks_per_node`` is set, it is that number, or 0 if the node is too small for it.
    """
    slots = cpus // (settings.cores_per_rank or 1)
    if settings.gpus_per_rank:
        gpus = sum(int(count) for count in re.findall(r"gpu:(?:[^:,(]+:)?(\d+)", resources))
        slots = min(gpus // settings.gpus_per_rank, slots)
    required = settings.ranks_per_node
    if required is None:
        return slots
    return required if required <= slots else 0
