"""The compute nodes of a run as text: how many of each kind, and how far equal nodes agree."""

from __future__ import annotations

from collections.abc import Sequence

from vflops.results.score.node_spread import NodeKindScore, QuickSpread, SlowNode
from vflops.units import count, percent, quantity

COLUMNS = ("kind of node", "nodes", "measured", "median", "smallest", "largest", "spread")
_MAX_NAMED = 4
"""The number of slow nodes that a line names."""


def nodes_title(kinds: Sequence[NodeKindScore]) -> str:
    """Return the system in words: ``4 nodes × (2 × H200, 32 CPUs)``; empty without nodes."""
    return " + ".join(f"{count(kind.nodes, 'node')} × ({kind.kind})" for kind in kinds)


def node_rows(kinds: Sequence[NodeKindScore]) -> list[tuple[str, ...]]:
    """Return one row per kind of node and short measurement, with the columns of ``COLUMNS``."""
    rows: list[tuple[str, ...]] = []
    for kind in kinds:
        names = (kind.kind, _number(kind))
        for item in kind.quick:
            figures = (quantity(value, item.unit) for value in _values(item))
            rows.append((*names, quick_name(item), *figures, _spread(item)))
            names = ("", "")
        if not kind.quick:
            rows.append((*names, "not measured", "", "", "", ""))
    return rows


def node_lines(kinds: Sequence[NodeKindScore]) -> list[str]:
    """Return the slow nodes, and remarks on the short measurements and on faults."""
    lines = []
    for kind in kinds:
        for item in kind.quick:
            name = quick_name(item)
            if item.slow:
                lines.append(f"{name}: {_slow(item)}")
            elif item.reason and item.measured > 1:
                lines.append(f"{name}: cannot tell which nodes are slow: {item.reason}")
            if item.note:
                lines.append(f"{name}: {item.note}")
        more = kind.fault_count - len(kind.faults)
        lines += [f"not measured: {fault}" for fault in kind.faults]
        lines += [f"not measured: {more} more"] if more > 0 else []
    return lines


def nodes_line(kinds: Sequence[NodeKindScore]) -> str | None:
    """Return the nodes, their spread and the slow ones in one line; None without nodes."""
    if not kinds:
        return None
    quick = [item for kind in kinds for item in kind.quick]
    spreads = [item.spread for item in quick if item.spread is not None]
    parts = [nodes_title(kinds)]
    if spreads:
        parts.append(f"spread between equal nodes (interquartile) {percent(max(spreads))}")
    slow = [f"{quick_name(item)}: {_slow(item)}" for item in quick if item.slow]
    if slow:
        parts += slow
    elif spreads and all(item.reason is None for item in quick):
        parts.append("none is slow beyond chance")
    return "; ".join(parts)


def quick_name(item: QuickSpread) -> str:
    """Return the name of a short measurement: ``gemm peak fp32``."""
    return " ".join(filter(None, (item.benchmark, item.case, item.precision)))


def _number(kind: NodeKindScore) -> str:
    hosts = f" on {count(kind.hosts, 'host')}" if kind.hosts < kind.nodes else ""
    return f"{kind.nodes:,}{hosts}"


def _values(item: QuickSpread) -> tuple[float, float, float]:
    return item.median, item.smallest, item.largest


def _spread(item: QuickSpread) -> str:
    return "—" if item.spread is None else percent(item.spread)


def _slow(item: QuickSpread) -> str:
    named = ", ".join(map(_slow_node, item.slow[:_MAX_NAMED]))
    more = item.slow_count - min(len(item.slow), _MAX_NAMED)
    verb = "is" if item.slow_count == 1 else "are"
    return f"{named}{f' and {more:,} more' if more else ''} {verb} slow"


def _slow_node(slow: SlowNode) -> str:
    device = f" {slow.device}" if ":" in slow.device else ""
    sharing = f", one of {slow.on_host} nodes on its host" if slow.on_host > 1 else ""
    return f"{slow.node}{device} ({percent(slow.below, digits=0)} below the median{sharing})"
