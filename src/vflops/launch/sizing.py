"""How many ranks a node takes, what each of them gets, and how many models a run has by default.

This is the only module that turns resources into slots. Accelerators define the slots of a node
that has any, unless training uses the CPU; otherwise a slot is a share of its cores.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from vflops.config.launch import LaunchSettings, ranks_on_each_node
from vflops.errors import UsageError
from vflops.launch.placement import THIS_MACHINE, Node, NodeResources, capacity, defaults

_SPARE_MEMORY = 0.05
"""The share of a node's memory that is not requested, for the system."""


@dataclass(frozen=True)
class RankShare:
    """What each rank gets of its node."""

    cores: int = 1
    gpus: int = 0
    gpu_type: str | None = None
    memory_mb: int | None = None


@dataclass(frozen=True)
class Asked:
    """What the user said about the size of a run; None where the user said nothing."""

    models: int | None = None
    ranks: int | None = None
    nodes: int | None = None
    scale: int | None = None
    most_ranks: int | None = None
    """The largest number of ranks that the batch suits; larger defaults are reduced to it."""


@dataclass(frozen=True)
class Shape:
    """M models of P ranks each on equal nodes."""

    models: int
    ranks: int
    nodes: tuple[Node, ...]
    """Their slots are the ranks that the run puts on each of them."""

    @property
    def ranks_per_node(self) -> int:
        """The number of ranks on each node, which may belong to several models."""
        return self.nodes[0].slots


def this_machine(device: str) -> NodeResources:
    """Return the resources of this machine for training on ``device``."""
    from vflops.machine import devices  # imports torch
    from vflops.machine.system.cpu_share import available_cpus

    gpus = devices.pick(device, "train.device").accelerators
    return NodeResources(
        THIS_MACHINE,
        available_cpus(),
        gpus=min(gpus, 1) if ":" in device else gpus,
    )


def local_nodes(launch: LaunchSettings, device: str) -> list[Node]:
    """Return this machine as a node or, in a rehearsal, the nodes that it stands for."""
    if not launch.rehearse:
        return [local_node(launch, device)]
    resources = this_machine(device)
    numbers = range(1, (launch.nodes or 1) + 1)
    names = [THIS_MACHINE] if len(numbers) == 1 else [f"node {number}" for number in numbers]
    return sized([replace(resources, name=name) for name in names], launch, device)


def local_node(launch: LaunchSettings, device: str) -> Node:
    """Return this machine as a node; raise UsageError if it takes no rank."""
    resources = this_machine(device)
    alone = launch.model_copy(update={"gpus_per_rank": None, "ranks_per_node": None})
    nodes = sized([resources], alone, device)
    if not nodes:
        raise UsageError(
            f"launch.cores_per_rank = {launch.cores_per_rank}, but there are"
            f" {resources.cores} processor cores",
            hint=f"use at most {resources.cores}",
        )
    return nodes[0]


def sized(resources: Sequence[NodeResources], launch: LaunchSettings, device: str) -> list[Node]:
    """Return the nodes that can take ranks, with their slots.

    If some of them have accelerators and training uses them, the others are left out.
    """
    per_rank = launch.gpus_per_rank
    if per_rank is None and device != "cpu" and any(item.gpus for item in resources):
        per_rank = 1
    if per_rank:
        needed = min(per_rank, 1) if launch.rehearse else per_rank
        resources = [item for item in resources if item.gpus >= needed]
    fixed = launch.ranks_per_node is not None
    nodes = [
        Node(
            item.name,
            _slots(item, launch, per_rank or 0),
            item,
            per_rank or 0,
            fixed,
            launch.rehearse,
        )
        for item in resources
    ]
    return [node for node in nodes if node.slots]


def _slots(resources: NodeResources, launch: LaunchSettings, gpus_per_rank: int) -> int:
    if launch.rehearse:
        return launch.ranks_per_node or (resources.gpus if gpus_per_rank else resources.cores)
    slots = resources.cores // (launch.cores_per_rank or 1)
    if gpus_per_rank:
        gpu_slots = _gpu_slots(resources, gpus_per_rank)
        slots = gpu_slots if launch.cores_per_rank is None else min(gpu_slots, slots)
    required = launch.ranks_per_node
    if required is None:
        return slots
    return required if required <= slots else 0


def rank_share(
    nodes: Sequence[Node], used: int, launch: LaunchSettings, *, whole: bool = False
) -> RankShare:
    """Return what each of ``used`` ranks of a node gets; the same on every node.

    The cores and the memory of a node are divided among its slots. These are its accelerators or,
    on a CPU and if the run has the ``whole`` node, the ranks that it is used for. In a rehearsal
    the ranks share all that the node has. There must be a node: without one, nothing says whether
    ranks get GPUs.
    """
    if not nodes:
        raise UsageError(
            f"no node has room for {used} ranks",
            hint="use fewer ranks on each node, or check which nodes are up",
        )
    shares = [_share(node, used, launch, whole=whole) for node in nodes]
    known = [share for share in shares if share is not None]
    if not known:
        return RankShare(launch.cores_per_rank or 1, launch.gpus_per_rank or 0)
    memory = [share.memory_mb for share in known]
    return replace(
        known[0],
        cores=min(share.cores for share in known),
        memory_mb=None if None in memory else min(mb for mb in memory if mb is not None),
    )


def node_share(nodes: Sequence[Node], launch: LaunchSettings, *, whole: bool = False) -> RankShare:
    """Return what the ranks of all slots of a node get together; the same on every node."""
    slots = nodes[0].slots
    share = rank_share(nodes, slots, launch, whole=whole)
    memory_mb = None if share.memory_mb is None else share.memory_mb * slots
    return RankShare(share.cores * slots, share.gpus * slots, share.gpu_type, memory_mb)


def _share(node: Node, used: int, launch: LaunchSettings, *, whole: bool) -> RankShare | None:
    resources, gpus = node.resources, node.gpus_per_slot
    if resources is None:
        return None
    if node.rehearsed:
        memory_mb = resources.memory_mb and int(resources.memory_mb * (1 - _SPARE_MEMORY))
        gpus = resources.gpus if gpus else 0
        return RankShare(resources.cores, gpus, resources.gpu_type, memory_mb)
    parts = used
    if gpus and not whole:
        parts = max(_gpu_slots(resources, gpus), used)
    cores = launch.cores_per_rank or resources.cores // parts
    if cores < 1:
        raise _too_few_cores(resources, gpus)
    memory = resources.memory_mb
    if memory is not None:
        share = min(cores / resources.cores, 1 / parts) if launch.cores_per_rank else 1 / parts
        memory = int(memory * (1 - _SPARE_MEMORY) * share)
    return RankShare(cores, gpus, resources.gpu_type, memory)


def _gpu_slots(resources: NodeResources, gpus_per_rank: int) -> int:
    return resources.gpus // gpus_per_rank


def _too_few_cores(resources: NodeResources, gpus_per_rank: int) -> UsageError:
    ranks = _gpu_slots(resources, gpus_per_rank)
    cores = f"{resources.cores} core{'s' * (resources.cores != 1)}"
    return UsageError(
        f"{resources.name} offers {cores} to {ranks} ranks, which need one each",
        hint="allocate all cores of the nodes: salloc --exclusive or --cpus-per-task; or use as"
        " many ranks as there are cores: --set launch.cores_per_rank=1",
    )


def shape(
    available: Sequence[Node],
    asked: Asked,
    *,
    cluster: bool,
    single: bool = False,
    workers: bool = False,
    waves: bool = False,
) -> Shape:
    """Return M, P and the nodes: what the user asked for, else the defaults of V3's table 2.

    P is by default the accelerators of a node, and M the number of nodes; on CPUs P is 1.
    ``single`` says that the workload cannot be an ensemble, so that M is 1; ``workers`` that the
    models are workers of a search, which have one accelerator each on this machine.
    """
    models, ranks = (1 if single else asked.models), asked.ranks
    accelerated = available[0].filled
    if available[0].rehearsed and not available[0].fixed:
        slots = _rehearsed_slots(available[0].slots, replace(asked, models=models))
        available = [replace(node, slots=slots) for node in available]
    if not accelerated and asked.scale is None:
        ranks = 1 if ranks is None else ranks
    elif workers and not cluster:
        ranks = ranks or 1
        models = models or capacity(available, ranks)
    for what, number in (("models", models), ("ranks", ranks), ("scale", asked.scale)):
        if number is not None and number < 1:
            raise UsageError(f"{what} is {number}", hint="use a whole number of at least 1")
    nodes = _equal_nodes(available, replace(asked, models=models, ranks=ranks))
    if asked.scale is not None:
        models, ranks = defaults(nodes, models, ranks, scale=asked.scale)
    elif asked.nodes is None:
        models = models or 1
        ranks = ranks or _suited(defaults(nodes, models, None)[1], asked.most_ranks)
    else:
        models, ranks = _of_given_nodes(
            nodes, models, ranks, asked.most_ranks, accelerated=accelerated
        )
    slots = nodes[0].slots
    spread = asked.nodes is not None or not accelerated
    if cluster and asked.scale is None and spread and not nodes[0].fixed and ranks < slots:
        sharing = -(-models // (asked.nodes or min(models, len(nodes))))
        slots = ranks * (min(sharing, slots // ranks) if waves else sharing)
        slots = min(slots, nodes[0].slots)
    return Shape(models, ranks, tuple(replace(node, slots=slots) for node in nodes))


def _rehearsed_slots(slots: int, asked: Asked) -> int:
    """Return how many ranks a node of the real layout takes.

    They are as many as the user asks for or, without that, the ``slots`` of the nodes here.
    """
    nodes, ranks = asked.nodes or 1, asked.ranks
    models = asked.models or nodes
    if asked.scale is not None:
        slots = -(-asked.scale // nodes)
        return slots if ranks is None or ranks > slots else -(-slots // ranks) * ranks
    if ranks is None:
        return max(slots, -(-models // nodes))
    return ranks_on_each_node(nodes, models, ranks)


def _of_given_nodes(
    nodes: Sequence[Node],
    models: int | None,
    ranks: int | None,
    most_ranks: int | None,
    *,
    accelerated: bool,
) -> tuple[int, int]:
    """Return M and P for a run that uses all of the nodes."""
    slots = nodes[0].slots
    if models is None:
        ranks = ranks or _suited(slots, most_ranks)
        one_each = not accelerated and not nodes[0].fixed and ranks <= slots
        return (len(nodes), ranks) if one_each else defaults(nodes, None, ranks)
    if ranks is None and models <= len(nodes):
        ranks = _suited(slots * (len(nodes) // models), most_ranks)
    return models, ranks or _suited(defaults(nodes, models, None)[1], most_ranks)


def _suited(ranks: int, most: int | None) -> int:
    """Return the number of ranks or, if that is more than ``most``, its largest divisor."""
    fewer = [n for n in range(1, min(ranks, most or ranks) + 1) if ranks % n == 0]
    return max(fewer)


def _equal_nodes(available: Sequence[Node], asked: Asked) -> list[Node]:
    """Return nodes with equally many slots each: as many slots as what is asked for allows.

    If the user gave the number of nodes, so many are returned.
    """
    groups = []
    for slots in sorted({node.slots for node in available}, reverse=True):
        large = [replace(node, slots=slots) for node in available if node.slots >= slots]
        groups.append(large[: asked.nodes] if asked.nodes is not None else large)
    return next(
        (group for group in groups if _take(group, asked)),
        max(groups, key=lambda group: len(group) * group[0].slots),
    )


def _take(nodes: Sequence[Node], asked: Asked) -> bool:
    if asked.nodes is not None:
        return len(nodes) == asked.nodes
    if asked.scale is not None:
        return len(nodes) * nodes[0].slots >= asked.scale
    if asked.ranks is None:
        return len(nodes) >= (asked.models or 1)
    return capacity(nodes, asked.ranks, asked.models or 1) == (asked.models or 1)
