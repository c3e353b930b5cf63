"""Assigns cores to the ranks of a node: those near their GPUs, or else an equal share.

The topology is read from Linux's ``/sys``; GPUs are numbered in the order of PCI addresses.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

from vflops.machine.probe import numbers
from vflops.machine.system.cpu_share import usable_cores
from vflops.machine.visible_devices import visible_devices

BINDING = "VFLOPS_BINDING"
"""The variable with the cores of each rank of a node, for the process that starts the ranks."""
HCA = "NCCL_IB_HCA"

_VENDORS = frozenset(("0x10de", "0x1002"))
"""PCI vendors of accelerators, NVIDIA and AMD; on-board graphics chips have other vendors."""
_ACCELERATORS = ("0x0300", "0x0302", "0x0380", "0x1200")
"""Prefixes of the PCI classes of accelerators."""


@dataclass(frozen=True)
class Topology:
    """Which cores, GPUs and InfiniBand devices of this machine are near each other."""

    nodes: Mapping[int, tuple[int, ...]]
    """The cores of each NUMA node; the threads of one core are adjacent."""
    gpus: tuple[int | None, ...] = ()
    """The NUMA node of each GPU; None if it is not known."""
    hcas: Mapping[str, int | None] = field(default_factory=dict)
    """The NUMA node of each InfiniBand device that has an active port."""
    first_thread: Mapping[int, int] = field(default_factory=dict)
    """The first thread of the physical core of each core that has several threads."""

    @classmethod
    def read(cls, root: Path = Path("/")) -> Topology:
        """Return the topology of this machine, or of one whose files are at ``root``."""
        sys = root / "sys"
        system = sys / "devices/system"
        nodes = {}
        for path in sorted(system.glob("node/node[0-9]*"), key=lambda path: int(path.name[4:])):
            if cores := numbers(_text(path / "cpulist")):
                nodes[int(path.name[4:])] = cores
        if not nodes:  # a kernel without NUMA, or a container without /sys
            nodes = {0: numbers(_text(system / "cpu/online")) or usable_cores()}
        first = {core: _first_thread(system, core) for node in nodes.values() for core in node}
        cards = sorted((sys / "bus/pci/devices").glob("*"), key=lambda path: path.name)
        bands = sorted((sys / "class/infiniband").glob("*"))
        return cls(
            {
                number: tuple(sorted(node, key=lambda core: (first[core], core)))
                for number, node in nodes.items()
            },
            tuple(_near(card) for card in cards if _is_gpu(card)),
            {band.name: _near(band / "device") for band in bands if _is_active(band)},
            first,
        )

    def near(self, gpu: int | None) -> int | None:
        """Return the NUMA node of a GPU; None if it is not known."""
        return self.gpus[gpu] if gpu is not None and gpu < len(self.gpus) else None

    def order(self, cores: Iterable[int]) -> list[int]:
        """Return the cores in an order that keeps those of a NUMA node together."""
        known = [core for node in self.nodes.values() for core in node]
        position = {core: number for number, core in enumerate(known)}
        return sorted(cores, key=lambda core: (position.get(core, len(position)), core))

    def physical_cores(self, cores: Iterable[int]) -> list[list[int]]:
        """Return the cores in groups: those that are threads of the same physical core."""
        groups: dict[int, list[int]] = {}
        for core in cores:
            groups.setdefault(self.first_thread.get(core, core), []).append(core)
        return list(groups.values())


@dataclass(frozen=True)
class RankBinding:
    """The cores and the GPU of one rank."""

    cores: tuple[int, ...]
    gpu: int | None
    nodes: tuple[int, ...]
    """The NUMA nodes of its cores: one, unless its share is larger than a node."""

    def __str__(self) -> str:
        gpu = "" if self.gpu is None else f", GPU {self.gpu}"
        return f"cores {spans(self.cores)} of NUMA node {spans(self.nodes)}{gpu}"


def bind(
    topology: Topology, cores: Collection[int], ranks: int, gpus: Sequence[int] = ()
) -> list[RankBinding]:
    """Return equal and disjoint shares of ``cores``, one per rank; none if there are too few.

    Ranks share no physical core, even if some cores remain unused, unless there are more ranks than
    physical cores.

    ``gpus`` are the GPUs of the ranks, in the order of ranks. Every rank gets cores of its GPU's
    NUMA node; if that is impossible for one of them, the GPUs of all are ignored.
    """
    rank_gpus = list(gpus[:ranks]) if len(gpus) >= ranks else []
    free = {number: [c for c in node if c in cores] for number, node in topology.nodes.items()}
    free = {number: node for number, node in free.items() if node}
    near = [topology.near(gpu) for gpu in rank_gpus]
    shares = _shares(topology, free, near) if near else None
    if not shares:
        groups = _merged(free, ranks)
        shares = _shares(topology, groups, _spread(groups, ranks))
    shares = shares or _in_order(topology, cores, ranks)
    node_of = {core: number for number, node in topology.nodes.items() for core in node}
    return [
        RankBinding(
            share,
            rank_gpus[rank] if rank_gpus else None,
            tuple(sorted({node_of.get(core, 0) for core in share})),
        )
        for rank, share in enumerate(shares)
    ]


def variables(
    topology: Topology,
    cores: Collection[int],
    ranks: int,
    environment: Mapping[str, str] = os.environ,
) -> tuple[dict[str, str], str]:
    """Return the environment variables of this node's ranks, and a description of the binding.

    All ranks of a node get the same InfiniBand devices, those near any of their GPUs: NCCL expects
    one view of a node.
    """
    requested = environment.get("SLURM_CPUS_PER_TASK", "")
    everything = sum(len(node) for node in topology.nodes.values())
    if requested.isdigit() and int(requested) < everything <= len(cores):
        # The step is not confined to its cores, so other jobs would choose the same ones.
        return {}, f"not bound: SLURM lets this step of {requested} cores use all {everything}"
    bound = bind(topology, cores, ranks, visible_devices(environment))
    if not bound:
        return {}, f"not bound: {len(cores)} cores for {ranks} ranks"
    result = {BINDING: ";".join(spans(rank.cores) for rank in bound)}
    words = "; ".join(f"rank {number} of this node: {rank}" for number, rank in enumerate(bound))
    nodes = {topology.near(rank.gpu) for rank in bound} - {None}
    near = [name for name, node in topology.hcas.items() if node in nodes]
    if near and HCA not in environment:
        result[HCA] = "=" + ",".join(near)  # exactly these: mlx5_1 would also select mlx5_10
        words += f"; {HCA}={result[HCA]}"
    return result, f"bound: {words}"


def spans(values: Iterable[int]) -> str:
    """Return the numbers as the kernel writes them, such as ``0-3,8``."""
    ends: list[list[int]] = []
    for value in sorted(values):
        if ends and value == ends[-1][1] + 1:
            ends[-1][1] = value
        else:
            ends.append([value, value])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in ends)


def _shares(
    topology: Topology, free: Mapping[int, Sequence[int]], near: Sequence[int | None]
) -> list[tuple[int, ...]] | None:
    """Return the cores of each rank in its NUMA node in ``near``; None if one would get none."""
    count = {number: near.count(number) for number in free}
    if not near or any(number not in free for number in near):
        return None
    groups = {
        number: _unshared_groups(topology, free[number], ranks)
        for number, ranks in count.items()
        if ranks
    }
    size = min(_largest_share(groups[number], count[number]) for number in groups)
    if not size:
        return None
    shares = {number: iter(_divided(groups[number], count[number], size)) for number in groups}
    return [next(shares[number]) for number in near if number is not None]


def _merged(free: Mapping[int, list[int]], ranks: int) -> Mapping[int, list[int]]:
    """Return the NUMA nodes in groups of equal number, one per rank, if there are more nodes."""
    if ranks >= len(free) or len(free) % ranks:
        return free
    nodes, size = list(free.values()), len(free) // ranks
    return {
        rank: list(chain.from_iterable(nodes[rank * size : (rank + 1) * size]))
        for rank in range(ranks)
    }


def _spread(free: Mapping[int, Sequence[int]], ranks: int) -> list[int | None]:
    """Return a NUMA node for each rank, in proportion to free cores; empty if ranks are too few."""
    if ranks < len(free):
        return []
    counts = dict.fromkeys(free, 0)
    for _ in range(ranks):
        roomiest = max(free, key=lambda number: len(free[number]) / (counts[number] + 1))
        counts[roomiest] += 1
    return [number for number, count in counts.items() for _ in range(count)]


def _in_order(topology: Topology, cores: Collection[int], ranks: int) -> list[tuple[int, ...]]:
    groups = _unshared_groups(topology, topology.order(cores), ranks)
    size = _largest_share(groups, ranks)
    return _divided(groups, ranks, size) if size else []


def _unshared_groups(topology: Topology, cores: Sequence[int], ranks: int) -> list[list[int]]:
    """Return what ranks do not share: physical cores, or single threads if there are more ranks."""
    physical = topology.physical_cores(cores)
    return physical if len(physical) >= ranks else [[core] for core in cores]


def _largest_share(groups: Sequence[Sequence[int]], ranks: int) -> int:
    """Return how many cores each of ``ranks`` can get if they share none of the groups."""
    size = sum(map(len, groups)) // ranks
    while size and len(_divided(groups, ranks, size)) < ranks:
        size -= 1
    return size


def _divided(groups: Sequence[Sequence[int]], ranks: int, size: int) -> list[tuple[int, ...]]:
    """Return shares of ``size`` cores, none of the same group, for as many ranks as possible."""
    shares: list[tuple[int, ...]] = []
    share: list[int] = []
    for group in groups:
        share += group
        if len(share) >= size and len(shares) < ranks:
            shares.append(tuple(share[:size]))
            share = []
    return shares


def _first_thread(system: Path, core: int) -> int:
    """Return the first thread of a physical core, given any of its threads."""
    siblings = _text(system / f"cpu/cpu{core}/topology/thread_siblings_list")
    return min(numbers(siblings), default=core)


def _is_gpu(card: Path) -> bool:
    kind = _text(card / "class").startswith(_ACCELERATORS)
    return kind and _text(card / "vendor") in _VENDORS


def _is_active(band: Path) -> bool:
    return any("ACTIVE" in _text(state) for state in band.glob("ports/*/state"))


def _near(device: Path) -> int | None:
    """Return the NUMA node of a device; None if it is not known (the kernel says -1)."""
    text = _text(device / "numa_node")
    return int(text) if text.isdigit() else None


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
