"""The nodes that the jobs of a run can use, and how many jobs they take at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from vflops.config.launch import LaunchSettings
from vflops.config.settings import Settings
from vflops.errors import UsageError
from vflops.launch.factory import launcher_class
from vflops.launch.placement import Node, capacity
from vflops.record.formats.job import JobRecord


def known_nodes(settings: LaunchSettings, device: str, slots: int | None = None) -> list[Node]:
    """Return the nodes of the launcher or, with ``slots``, ``launch.nodes`` described ones."""
    place = launcher_class(settings.on)
    if slots is None:
        place.check(settings)
        return place.nodes(settings, device)
    if settings.nodes is None:
        raise UsageError(
            f"--slots {slots} without --nodes", hint="add --nodes N, the number of nodes"
        )
    return [Node(f"node {count}", slots) for count in range(1, settings.nodes + 1)]


def usable_nodes(settings: LaunchSettings, device: str, ranks: int) -> list[Node]:
    """Return the nodes for models of ``ranks`` ranks, with the slots that a run requests.

    An allocation for all models takes the same number of ranks on each node:
    ``launch.ranks_per_node`` or, if that is not set, the ranks of one model. Smaller nodes are left
    out.
    """
    nodes = known_nodes(settings, device)
    if not launcher_class(settings.on).gang_scheduled(settings):
        return nodes[: settings.nodes]
    slots = settings.ranks_per_node or ranks
    usable = [replace(node, slots=slots) for node in nodes if node.slots >= slots]
    if not usable:
        largest = max(node.slots for node in nodes)
        raise UsageError(
            f"no node takes {slots} ranks: the largest takes {largest}",
            hint=f"use --ranks {largest}, or --set launch.ranks_per_node={largest} for models that"
            " span nodes",
        )
    return usable[: settings.nodes]


def waves(settings: Settings, records: Sequence[JobRecord]) -> list[Sequence[JobRecord]]:
    """Return the jobs in groups, which get one allocation after the other.

    All jobs are one group without ``bagging.waves``, or if each job is started separately.
    """
    gang_scheduled = launcher_class(settings.launch.on).gang_scheduled(settings.launch)
    if not settings.bagging.waves or not gang_scheduled:
        return [records]
    ranks, device = records[0].ranks, records[0].settings["train"]["device"]
    fit = max(capacity(usable_nodes(settings.launch, device, ranks), ranks, len(records)), 1)
    return [records[start : start + fit] for start in range(0, len(records), fit)]
