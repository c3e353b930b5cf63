"""Compares a recorded graph with a rebuilt one by everything that is counted.

Names, the order of operators and operators without arithmetic may differ. The batch, the sizes of
the parameters, and the operations of every node by every convention may not.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from vflops.counting.conventions import BUILT_IN, TRANSFORMER, Convention, Ops
from vflops.counting.conventions.transformer_graph import token_count
from vflops.counting.count import count
from vflops.errors import UsageError
from vflops.record.formats.graph import Graph
from vflops.units import integer, quantity

_LIGHT = frozenset({"elementwise", "softmax", "loss", "reduction", "other"})
"""Kinds of operators that a release of torch may split in another way, such as those of a loss."""
_NEGLIGIBLE = 1e-5
"""The share of the operations up to which light operators of our networks may differ."""

_Counted = Counter[tuple[str, Ops]]


@dataclass(frozen=True)
class Difference:
    """What a recorded graph has, and what follows from the settings instead."""

    text: str
    negligible: bool = False
    """Whether only light operators differ, by less than a hundred-thousandth of the operations."""


def difference(recorded: Graph, rebuilt: Graph) -> Difference | None:
    """Return the first difference that is not negligible, or else the first one, or else None."""
    if recorded.batch != rebuilt.batch:
        batches = f"a batch of {integer(recorded.batch)} samples"
        return Difference(f"it was counted for {batches}, not {integer(rebuilt.batch)}")
    if recorded.parameter_count != rebuilt.parameter_count:
        parameters = f"it has {integer(recorded.parameter_count)} parameters"
        return Difference(f"{parameters}, not {integer(rebuilt.parameter_count)}")
    if sorted(recorded.parameters.values()) != sorted(rebuilt.parameters.values()):
        return Difference("its parameters have other sizes, though as many elements")
    rules = BUILT_IN if token_count(rebuilt) is None else (*BUILT_IN, *TRANSFORMER)
    found = [item for rule in rules if (item := _counted_otherwise(recorded, rebuilt, rule))]
    return next((item for item in found if not item.negligible), found[0] if found else None)


def _counted_otherwise(recorded: Graph, rebuilt: Graph, rule: Convention) -> Difference | None:
    expected = _counted(rebuilt, rule)
    try:
        own = _counted(recorded, rule)
    except UsageError as error:  # a formula that applies to the network of the settings
        return Difference(f"it cannot be counted by the rules {rule.id}: {error.message}")
    if own == expected:
        return None
    kinds = {kind for kind, _ in (own - expected) + (expected - own)}
    gaps = {kind: abs(_total(own, kind) - _total(expected, kind)) for kind in sorted(kinds)}
    kind = max(gaps, key=lambda kind: (kind not in _LIGHT, gaps[kind]))
    limit = _NEGLIGIBLE * count(rebuilt, rule).total.total
    negligible = kinds <= _LIGHT and sum(gaps.values()) <= limit
    return Difference(
        f"it has {_described(own, kind)}, not {_described(expected, kind)}, by the rules {rule.id}",
        negligible,
    )


def _counted(graph: Graph, rule: Convention) -> _Counted:
    """Return how often each kind of node occurs with which operations, if it has any."""
    counted = count(graph, rule)
    backward = graph.backward.nodes if graph.backward else ()
    nodes = zip((*graph.nodes, *backward), (*counted.ops, *counted.backward_ops), strict=True)
    return Counter((node.kind, ops) for node, ops in nodes if ops is not None and ops != Ops())


def _total(counted: _Counted, kind: str) -> int:
    return sum(times * ops.total for (name, ops), times in counted.items() if name == kind)


def _described(counted: _Counted, kind: str) -> str:
    nodes = sum(times for (name, _), times in counted.items() if name == kind)
    return f"{integer(nodes)} {kind} nodes with {quantity(_total(counted, kind), 'FLOP')}"
