"""How many ranks the nodes of a scheduler take, so that models share nodes or span them."""

from __future__ import annotations

from collections.abc import Sequence

from vflops.config.launch import LaunchSettings
from vflops.errors import UsageError
from vflops.launch import nodes as launch_nodes
from vflops.launch.factory import launcher_class
from vflops.launch.node_layout import NodeLayout
from vflops.launch.placement import Node, capacity
from vflops.studies.scale.scale_result import Size


def ranks_per_node(launch: LaunchSettings, device: str, sizes: Sequence[Size]) -> int | None:
    """Return ``launch.ranks_per_node`` or, if it is not set, the slots of a node of the scheduler.

    If nodes differ, smaller ones may be left out: all points must fit and, of the numbers with
    which they do, this is the one with the most slots. Return None for this machine, which is
    a single node unless it rehearses several.
    """
    place = launcher_class(launch.on)
    here = place.is_this_machine and not launch.rehearse
    if launch.ranks_per_node is not None or here:
        return launch.ranks_per_node
    nodes = launch_nodes.known_nodes(launch, device)
    alike = {slots: _at_least(nodes, slots) for slots in {node.slots for node in nodes}}
    choices = sorted(alike, key=lambda slots: (slots * len(alike[slots]), slots), reverse=True)
    return next((slots for slots in choices if _all_fit(alike[slots], sizes)), choices[0])


def _at_least(nodes: Sequence[Node], slots: int) -> list[Node]:
    return [Node(node.name, slots) for node in nodes if node.slots >= slots]


def _all_fit(nodes: Sequence[Node], sizes: Sequence[Size]) -> bool:
    """Whether the models of each size fit on nodes of equal size, all at once."""
    try:
        for size in sizes:
            NodeLayout(size.ranks, nodes[0].slots)
    except UsageError:
        return False
    return all(capacity(nodes, size.ranks, size.jobs) == size.jobs for size in sizes)
