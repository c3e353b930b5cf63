"""How points of a workload divide the nodes: as many ranks on each of k nodes as ``vflops run``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any

from vflops.config.settings import Settings
from vflops.errors import UsageError
from vflops.launch.factory import launcher_class
from vflops.launch.node_layout import NodeLayout, check_layout
from vflops.launch.nodes import known_nodes, usable_nodes
from vflops.launch.placement import Node, Plan, capacity, plan
from vflops.launch.sizing import Asked, shape
from vflops.run.run_size import size_run
from vflops.studies.scale.scale_result import Size
from vflops.units import count
from vflops.workloads.contract.run_settings import load


@dataclass(frozen=True)
class NodeShares:
    """N nodes with R ranks on each, in models of P ranks.

    On a single machine, a part of it with one model counts as a node.
    """

    nodes: int
    ranks: int
    """P, the ranks of a model."""
    ranks_per_node: int
    """R; less than P if a model spans nodes."""
    is_this_machine: bool = False

    @property
    def slots(self) -> int:
        """The ranks on all nodes together."""
        return self.nodes * self.ranks_per_node

    @property
    def settings(self) -> dict[str, Any]:
        """The settings with which all points have these shares."""
        return {} if self.is_this_machine else {"launch.ranks_per_node": self.ranks_per_node}

    def models(self, nodes: Callable[[int], list[int]]) -> list[int]:
        """Return the numbers of models on those numbers of nodes that ``nodes`` chooses of all."""
        span = max(self.ranks // self.ranks_per_node, 1)
        return [n * span * self.ranks_per_node // self.ranks for n in nodes(self.nodes // span)]

    def divisors(self, nodes: Callable[[int], list[int]]) -> list[int]:
        """Return those numbers of models that share all slots, in whole nodes or parts of one."""
        chosen = nodes(self.slots // self.ranks)
        return [m for m in chosen if self.slots % m == 0 and self._tiles(self.slots // m)]

    def _tiles(self, ranks: int) -> bool:
        """Whether models of so many ranks fill nodes."""
        each = self.ranks_per_node
        return self.is_this_machine or ranks % each == 0 or each % ranks == 0

    def nodes_of(self, size: Size) -> int:
        """Return the number of nodes that a point uses."""
        return 1 if self.is_this_machine else nodes_of(size, self.ranks_per_node)


def node_shares(settings: Settings, ranks: int | None) -> NodeShares:
    """Return the shares that ``vflops run`` has on all nodes, with ``ranks`` per model if given."""
    launch = settings.launch
    ((name, section),) = settings.workloads.items()
    place = launcher_class(launch.on)
    if not place.nodes_reserved() and launch.nodes is None:
        raise UsageError(
            f"--nodes is needed with launch.on = {launch.on}: the size of the machine is not known",
            hint="add --nodes N",
        )
    given: list[str] = []
    if ranks is not None:
        settings, given = _with_ranks(settings, ranks), ["train.ranks"]
    found = size_run(settings, given).shapes[name]
    if not place.is_this_machine or launch.rehearse:
        check_layout(place, found.nodes, found.ranks)
        return NodeShares(len(found.nodes), found.ranks, found.ranks_per_node)
    nodes = known_nodes(launch, section["train"]["device"])
    number = capacity(nodes, found.ranks)
    if number == 0:
        raise UsageError(
            f"no model of {count(found.ranks, 'rank')} fits: this machine takes"
            f" {count(nodes[0].slots, 'rank')}",
            hint="use fewer --ranks",
        )
    return NodeShares(min(number, launch.nodes or number), found.ranks, found.ranks, True)


def _with_ranks(settings: Settings, ranks: int) -> Settings:
    return load(settings, None, [f"train.ranks={ranks}"], keep_batch_per_rank=True)


def ranks_per_node(settings: Settings, sizes: Sequence[Size]) -> int | None:
    """Return ``launch.ranks_per_node`` or, if it is not set, the same number for all points.

    It is the largest that ``vflops run`` chooses for one of the points and with which all points
    fit the nodes, so that a rank has the same share of a node at all of them. Return None for this
    machine, which is a single node unless it rehearses several.
    """
    launch = settings.launch
    place = launcher_class(launch.on)
    here = place.is_this_machine and not launch.rehearse
    if launch.ranks_per_node is not None or here:
        return launch.ranks_per_node
    (section,) = settings.workloads.values()
    nodes = known_nodes(launch, section["train"]["device"])
    number = launch.nodes or (len(nodes) if place.nodes_reserved() else None)
    choices = set()
    for size in dict.fromkeys(size._replace(variant=None) for size in sizes):
        asked = Asked(models=size.jobs, ranks=size.ranks, nodes=number)
        choices.add(shape(nodes, asked, cluster=True).ranks_per_node)
    ordered = sorted(choices, reverse=True)
    return next((each for each in ordered if _all_fit(nodes, number, each, sizes)), ordered[0])


def _all_fit(nodes: Sequence[Node], number: int | None, slots: int, sizes: Sequence[Size]) -> bool:
    """Whether the models of each size fit, all at once, with so many ranks on each node."""
    equal = [Node(node.name, slots) for node in nodes if node.slots >= slots][:number]
    try:
        for size in sizes:
            NodeLayout(size.ranks, slots)
    except UsageError:
        return False
    return bool(equal) and all(
        capacity(equal, size.ranks, size.jobs) == size.jobs for size in sizes
    )


def nodes_of(size: Size, ranks_per_node: int) -> int:
    """Return the number of nodes that a point uses, with so many ranks on each of them."""
    if size.ranks > ranks_per_node:
        return size.jobs * ceil(size.ranks / ranks_per_node)
    return ceil(size.jobs / (ranks_per_node // size.ranks))


def placed(settings: Settings, workload: str, size: Size) -> Plan:
    """Return the placement of a point's models; raise UsageError if they do not fit at once."""
    device = settings.workloads[workload]["train"]["device"]
    nodes = usable_nodes(settings.launch, device, size.ranks)
    return plan(nodes, size.jobs, size.ranks, may_wait=False)
