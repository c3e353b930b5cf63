"""The compute nodes by kind, and how far equal nodes agree in a short measurement.

Every node makes the short measurement at the same time as all others. It compares nodes, and is no
ceiling: a ceiling is from the full set, which one node of each kind measures.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from vflops.metrics.outliers import MIN_NODES, slow_figures
from vflops.record.files.document import Data
from vflops.record.formats.measured_node import MeasuredNode
from vflops.record.formats.measurement import Measurement, Unit
from vflops.record.readout.contents import Contents
from vflops.units import percent

MIN_OF_FULL = 0.8
"""A short measurement below this share of the full one on the same node is explained, and so is a
full measurement below this share of the short one."""
MAX_LISTED = 16
"""The largest number of slow nodes, and of faults, that the score lists for each measurement."""

Key = tuple[str, str, str | None]


class SlowNode(Data):
    """A node, or one of its accelerators, that is slower than equal ones beyond chance."""

    node: str
    device: str
    value: float
    below: float
    """The share by which it is below the median."""
    on_host: int = 1
    """The number of measured nodes on its host, which slow each other down."""


class QuickSpread(Data):
    """One short measurement over all nodes of a kind."""

    benchmark: str
    case: str
    precision: str | None
    unit: Unit
    measured: int
    """The number of values: one per node, or one per accelerator."""
    median: float
    smallest: float
    largest: float
    spread: float | None
    """Interquartile range / median; None for a single value."""
    slow: tuple[SlowNode, ...] = ()
    """The slowest ones, slowest first."""
    slow_count: int = 0
    reason: str | None = None
    """Why slow nodes cannot be named; None if they were compared."""
    of_full: float | None = None
    """The short measurement / the full one, on the node that made both."""
    note: str | None = None
    """An explanation if the short measurement is well below, or well above, the full one."""


class NodeKindScore(Data):
    """The measured compute nodes of one kind."""

    kind: str
    nodes: int
    hosts: int
    """The number of machines that the nodes are on."""
    full_on: tuple[str, ...]
    """The nodes that measured the full set of ceilings."""
    quick: tuple[QuickSpread, ...]
    faults: tuple[str, ...] = ()
    """What could not be measured on a node, and why."""
    fault_count: int = 0


@dataclass(frozen=True)
class QuickValue:
    """A value of a short measurement on one node."""

    node: str
    device: str
    value: float


def nodes_by_kind(contents: Contents) -> dict[str, list[MeasuredNode]]:
    """Return the measured nodes of each kind, in the order of measuring."""
    by_kind: dict[str, list[MeasuredNode]] = {}
    for node in contents.measured_nodes:
        by_kind.setdefault(node.kind, []).append(node)
    return by_kind


def node_kind_scores(contents: Contents) -> tuple[NodeKindScore, ...]:
    """Return one score per kind of node; empty if no compute node was measured."""
    return tuple(_kind_score(kind, nodes) for kind, nodes in contents.once(nodes_by_kind).items())


def quick_values(nodes: Sequence[MeasuredNode]) -> dict[Key, list[QuickValue]]:
    """Return the values of each short measurement on nodes of one kind."""
    values: dict[Key, list[QuickValue]] = {}
    for node in nodes:
        for item in node.quick:
            if item.value:
                measured = QuickValue(node.node, item.device, item.value)
                values.setdefault(item.key, []).append(measured)
    return values


def _kind_score(kind: str, nodes: Sequence[MeasuredNode]) -> NodeKindScore:
    units = {item.key: item.unit for node in nodes for item in node.quick}
    quick = [_spread(key, units[key], values, nodes) for key, values in quick_values(nodes).items()]
    faults = [f"{node.node}: {fault}" for node in nodes for fault in node.faults]
    return NodeKindScore(
        kind=kind,
        nodes=len(nodes),
        hosts=len({node.host for node in nodes}),
        full_on=tuple(node.node for node in nodes if node.full),
        quick=tuple(quick),
        faults=tuple(faults[:MAX_LISTED]),
        fault_count=len(faults),
    )


def _spread(
    key: Key, unit: Unit, values: Sequence[QuickValue], nodes: Sequence[MeasuredNode]
) -> QuickSpread:
    speeds = [item.value for item in values]
    median, reason, slow = statistics.median(speeds), None, list[SlowNode]()
    on_host = Counter(node.host for node in nodes)
    sharing = {node.node: on_host[node.host] for node in nodes}
    if len(speeds) < MIN_NODES:
        reason = f"at least {MIN_NODES} are needed, and there are {len(speeds)}"
    else:
        slow = [
            SlowNode(
                node=values[index].node,
                device=values[index].device,
                value=values[index].value,
                below=1 - values[index].value / median,
                on_host=sharing[values[index].node],
            )
            for index in slow_figures(speeds)
        ]
        slow.sort(key=lambda item: item.value)
    of_full, note = _of_full(key, values, nodes, sharing)
    return QuickSpread(
        benchmark=key[0],
        case=key[1],
        precision=key[2],
        unit=unit,
        measured=len(speeds),
        median=median,
        smallest=min(speeds),
        largest=max(speeds),
        spread=_relative_range(speeds, median),
        slow=tuple(slow[:MAX_LISTED]),
        slow_count=len(slow),
        reason=reason,
        of_full=of_full,
        note=note,
    )


def _relative_range(speeds: Sequence[float], median: float) -> float | None:
    if len(speeds) < 2:
        return None
    low, _, high = statistics.quantiles(speeds, n=4, method="inclusive")
    return (high - low) / median


def _of_full(
    key: Key,
    values: Sequence[QuickValue],
    nodes: Sequence[MeasuredNode],
    sharing: dict[str, int],
) -> tuple[float | None, str | None]:
    """Return the short measurement / the full one, and an explanation if they differ much."""
    full = {node.node: item.value for node in nodes for item in node.full if _has(item, key)}
    pairs = [(item, full[item.node]) for item in values if item.node in full]
    if not pairs:
        return None, None
    (first, ceiling), *_ = pairs
    share = first.value / ceiling if ceiling else None
    if share is None or MIN_OF_FULL <= share <= 1 / MIN_OF_FULL:
        return share, None
    if share > 1:
        return share, (
            f"on {first.node}, it is {share:.1f} times the full measurement, which was disturbed "
            "or too short: the highest value counts as ceiling"
        )
    why = "it is shorter, and all nodes measure at the same time"
    if sharing[first.node] > 1:
        why = f"{sharing[first.node]} nodes share that host and measure at the same time"
    return share, (
        f"on {first.node}, it reaches {percent(share, digits=0)} of the full measurement: {why}; "
        "it compares nodes, and is not used as a ceiling"
    )


def _has(item: Measurement, key: Key) -> bool:
    return item.key == key and bool(item.value)
