"""The nodes that SLURM lists, their states, and the allocation that this process runs in."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from vflops.errors import UsageError
from vflops.launch.scheduler import Unreachable
from vflops.launch.slurm.commands import command_failed, listing, query

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


def unreachable_nodes(names: Collection[str]) -> dict[str, Unreachable]:
    """Return those of the nodes that are down, or that SLURM did not reach the last time."""
    command = ["sinfo", "--noheader", "--Node", f"--nodes={','.join(names)}", "--format=%N|%T|%E"]
    found = {}
    for line in listing(command):
        name, state, reason = line.strip().split("|", 2)
        if state.startswith(_LOST):
            found[name] = Unreachable(f"{name} is {state.rstrip('*')}: {reason}", is_down=True)
        elif state.endswith("*"):
            text = f"{name} does not respond to SLURM ({state.rstrip('*')})"
            found[name] = Unreachable(text, is_down=False)
    return found


def node_addresses(partition: str | None) -> list[str]:
    """Return the addresses of some nodes of a partition, or of all; none if SLURM says none."""
    command = ["sinfo", "--noheader", "--Node", "--format=%o"]
    lines = listing([*command, *([f"--partition={partition}"] if partition else [])])
    addresses = list(dict.fromkeys(line.strip() for line in lines))
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
