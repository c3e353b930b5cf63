"""Which cores the ranks of a node get: those near their GPUs, and else an even share.

Read from Linux's ``/sys``; a GPU's number is its place in the order of PCI addresses.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

BINDING = "VFLOPS_BINDING"
"""The variable that tells who starts the ranks of a node which cores each of them has."""
HCA = "NCCL_IB_HCA"

_MAKERS = frozenset(("0x10de", "0x1002"))
"""NVIDIA and AMD: a server's own graphics chip is no accelerator."""
_ACCELERATORS = ("0x0300", "0x0302", "0x0380", "0x1200")


@dataclass(frozen=True)
class Topology:
    """What is near to what on this machine."""

    nodes: Mapping[int, tuple[int, ...]]
    """The cores of each NUMA node; threads of one core stand side by side."""
    gpus: tuple[int | None, ...] = ()
    """The NUMA node of each, where it is known."""
    hcas: Mapping[str, int | None] = field(default_factory=dict)
    """The same of InfiniBand devices that have an active port."""

    @classmethod
    def read(cls, root: Path = Path("/sys")) -> Topology:
        """This machine, or one whose ``/sys`` is below ``root``."""
        system = root / "devices/system"
        nodes = {}
        for path in sorted(system.glob("node/node[0-9]*"), key=lambda path: int(path.name[4:])):
            if cores := numbers(_text(path / "cpulist")):
                nodes[int(path.name[4:])] = tuple(sorted(cores, key=_core_of(system)))
        if not nodes:  # a kernel without NUMA
            online = numbers(_text(system / "cpu/online")) or range(os.cpu_count() or 1)
            nodes = {0: tuple(sorted(online, key=_core_of(system)))}
        cards = sorted((root / "bus/pci/devices").glob("*"), key=lambda path: path.name)
        bands = sorted((root / "class/infiniband").glob("*"))
        return cls(
            nodes,
            tuple(_near(card) for card in cards if _is_gpu(card)),
            {band.name: _near(band / "device") for band in bands if _is_active(band)},
        )

    def near(self, gpu: int | None) -> int | None:
        """The NUMA node of a GPU, where it is known."""
        return self.gpus[gpu] if gpu is not None and gpu < len(self.gpus) else None

    def order(self, cores: Iterable[int]) -> list[int]:
        """Cores in the order in which they are near each other."""
        known = [core for node in self.nodes.values() for core in node]
        place = {core: number for number, core in enumerate(known)}
        return sorted(cores, key=lambda core: (place.get(core, len(place)), core))


@dataclass(frozen=True)
class Bound:
    """What one rank has."""

    cores: tuple[int, ...]
    gpu: int | None
    nodes: tuple[int, ...]
    """The NUMA nodes of its cores: one, unless its share is larger than that."""

    def __str__(self) -> str:
        gpu = "" if self.gpu is None else f", GPU {self.gpu}"
        return f"cores {spans(self.cores)} of NUMA node {spans(self.nodes)}{gpu}"


def bind(
    topology: Topology, cores: Collection[int], ranks: int, gpus: Sequence[int] = ()
) -> list[Bound]:
    """Equal and disjoint shares of ``cores`` for the ranks; none where they are too few.

    ``gpus``: those of the ranks, in their order. All ranks have cores of their GPU's NUMA node or,
    where that cannot be for one of them, none looks for it.
    """
    own = list(gpus[:ranks]) if len(gpus) >= ranks else []
    free = {number: [c for c in node if c in cores] for number, node in topology.nodes.items()}
    free = {number: found for number, found in free.items() if found}
    near = [topology.near(gpu) for gpu in own]
    shares = _shares(free, near) if near else None
    shares = shares or _shares(free, _spread(free, ranks)) or _in_order(topology, cores, ranks)
    of = {core: number for number, node in topology.nodes.items() for core in node}
    return [
        Bound(share, own[rank] if own else None, tuple(sorted({of.get(c, 0) for c in share})))
        for rank, share in enumerate(shares)
    ]


def variables(
    topology: Topology,
    cores: Collection[int],
    ranks: int,
    environment: Mapping[str, str] = os.environ,
) -> tuple[dict[str, str], str]:
    """What the ranks of this node are told, and the same in words.

    All ranks of a node are told the same InfiniBand devices, those near to any of their GPUs:
    NCCL wants one view of a node.
    """
    asked = environment.get("SLURM_CPUS_PER_TASK", "")
    everything = sum(len(node) for node in topology.nodes.values())
    if asked.isdigit() and int(asked) < everything <= len(cores):
        # Other jobs of the node would choose the same cores.
        return {}, f"not bound: SLURM lets this step of {asked} cores use all {everything}"
    bound = bind(topology, cores, ranks, visible(environment))
    if not bound:
        return {}, f"not bound: {len(cores)} cores for {ranks} ranks"
    told = {BINDING: ";".join(spans(each.cores) for each in bound)}
    words = "; ".join(f"rank {number} of this node: {each}" for number, each in enumerate(bound))
    nodes = {topology.near(each.gpu) for each in bound} - {None}
    near = [name for name, node in topology.hcas.items() if node in nodes]
    if near and HCA not in environment:
        told[HCA] = ",".join(near)
        words += f"; {HCA}={told[HCA]}"
    return told, f"bound: {words}"


def visible(environment: Mapping[str, str] = os.environ) -> list[int]:
    """The node's numbers of the GPUs that ranks may use; SLURM may have renamed them for CUDA."""
    names = ("SLURM_STEP_GPUS", "SLURM_JOB_GPUS", "CUDA_VISIBLE_DEVICES")
    said = next((environment[name] for name in names if environment.get(name)), "")
    parts = said.split(",")
    return [int(part) for part in parts] if all(part.isdigit() for part in parts) else []


def numbers(text: str) -> list[int]:
    """What the kernel means by ``0-3,8``."""
    found: list[int] = []
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        with suppress(ValueError):
            found += range(int(first), int(last or first) + 1)
    return found


def spans(values: Iterable[int]) -> str:
    """The same backwards."""
    ends: list[list[int]] = []
    for value in sorted(values):
        if ends and value == ends[-1][1] + 1:
            ends[-1][1] = value
        else:
            ends.append([value, value])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in ends)


def _shares(
    free: Mapping[int, Sequence[int]], near: Sequence[int | None]
) -> list[tuple[int, ...]] | None:
    """Each rank's cores inside of the NUMA node that it is near to, if all have some there."""
    count = {number: near.count(number) for number in free}
    if not near or any(number not in free for number in near):
        return None
    each = min(len(free[number]) // ranks for number, ranks in count.items() if ranks)
    if not each:
        return None
    taken = dict.fromkeys(free, 0)
    shares = []
    for number in near:
        assert number is not None
        start = taken[number]
        taken[number] = start + each
        shares.append(tuple(free[number][start : start + each]))
    return shares


def _spread(free: Mapping[int, Sequence[int]], ranks: int) -> list[int | None]:
    """A NUMA node for each rank, as many as its cores allow; none where ranks are larger."""
    if ranks < len(free):
        return []
    counts = dict.fromkeys(free, 0)
    for _ in range(ranks):
        roomiest = max(free, key=lambda number: len(free[number]) / (counts[number] + 1))
        counts[roomiest] += 1
    return [number for number, count in counts.items() for _ in range(count)]


def _in_order(topology: Topology, cores: Collection[int], ranks: int) -> list[tuple[int, ...]]:
    each, ordered = len(cores) // ranks, topology.order(cores)
    return [tuple(ordered[r * each : (r + 1) * each]) for r in range(ranks)] if each else []


def _core_of(system: Path) -> Callable[[int], tuple[int, int]]:
    """The key that keeps the threads of a core together."""

    def key(thread: int) -> tuple[int, int]:
        siblings = _text(system / f"cpu/cpu{thread}/topology/thread_siblings_list")
        return min(numbers(siblings), default=thread), thread

    return key


def _is_gpu(card: Path) -> bool:
    kind = _text(card / "class").startswith(_ACCELERATORS)
    return kind and _text(card / "vendor") in _MAKERS


def _is_active(band: Path) -> bool:
    return any("ACTIVE" in _text(state) for state in band.glob("ports/*/state"))


def _near(device: Path) -> int | None:
    """The NUMA node of a device; the kernel says -1 where it does not know."""
    text = _text(device / "numa_node")
    return int(text) if text.isdigit() else None


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
