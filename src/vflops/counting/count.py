"""Counts the operations of a graph by a convention: in total, by kind and by layer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from vflops.counting import aten
from vflops.counting.conventions.base import Convention, Ops
from vflops.counting.conventions.executed import EXECUTED
from vflops.counting.conventions.transformer_graph import token_count
from vflops.metrics.summation import sum_in_order
from vflops.record.formats.graph import FORMULA, NO_ARITHMETIC, BackwardNode, Graph, Node
from vflops.units import percent

_PRODUCTS = ("convolution", "dense", "product")


@dataclass(frozen=True)
class Row:
    """The operations of one kind of operator or of one layer."""

    name: str
    nodes: int
    ops: Ops
    ruled: bool
    """Whether the convention covers at least one of the nodes."""


@dataclass(frozen=True)
class Uncounted:
    """An operator that does arithmetic but is not covered by the convention."""

    op: str
    kind: str
    nodes: int
    share: float
    """Its share of the elements that all operators of the model read and write."""
    executed_share: float
    """Its share of the operations that the framework executes, by the convention ``executed``."""

    @property
    def is_unknown(self) -> bool:
        """Whether no convention knows how much it computes, which may be most of the work."""
        return self.kind == "other" and not self.executed_share and not aten.is_light(self.op)

    @property
    def may_be_much(self) -> bool:
        """Whether it may be most of the work: a product, a convolution, or unknown."""
        return self.kind in _PRODUCTS or self.is_unknown


@dataclass(frozen=True)
class Count:
    """All operations of one batch by one convention."""

    graph: Graph
    convention: Convention
    ops: tuple[Ops | None, ...]
    """One entry per node of the graph; None if the convention does not cover it."""
    backward_ops: tuple[Ops | None, ...] = ()
    """One entry per node of the graph's backward pass."""

    @cached_property
    def total(self) -> Ops:
        """The operations of the whole model."""
        return _sum((*self.ops, *self.backward_ops))

    @cached_property
    def tokens(self) -> int | None:
        """The number of tokens in the batch; None if the model does not look up tokens."""
        return token_count(self.graph)

    @property
    def per_token(self) -> int | float | None:
        """The operations of the whole model per token: an integer where the division is exact."""
        if self.tokens is None:
            return None
        whole, rest = divmod(self.total.total, self.tokens)
        return self.total.total / self.tokens if rest else whole

    @property
    def by_kind(self) -> list[Row]:
        """Totals per kind of operator that does arithmetic, largest first."""
        rows = self._rows(lambda node: node.kind)
        return sorted(rows, key=lambda row: (-row.ops.total, row.name))

    @property
    def by_layer(self) -> list[Row]:
        """Totals per module, in the order of execution."""
        return self._rows(lambda node: node.scope or "(model)")

    @cached_property
    def notes(self) -> tuple[str, ...]:
        """What a reader must know of the count, each a sentence; usually none."""
        return tuple(_notes(self.graph))

    @cached_property
    def uncounted(self) -> tuple[Uncounted, ...]:
        """Operators that are not counted, in descending order of their share of elements."""
        elements_by_node = self.graph.elements_touched
        if self.graph.backward_graph is not None:
            elements_by_node += self.graph.backward_graph.elements_touched
        executed = count(self.graph, EXECUTED)
        executed_by_node = [
            ops.total if ops else 0 for ops in (*executed.ops, *executed.backward_ops)
        ]
        groups: dict[tuple[str, str], list[int]] = {}
        for index, (node, ops) in enumerate(self._all_nodes()):
            if ops is None:
                groups.setdefault((node.op, node.kind), []).append(index)
        uncounted = [
            Uncounted(
                op=op,
                kind=kind,
                nodes=len(indices),
                share=_share(elements_by_node, indices),
                executed_share=_share(executed_by_node, indices),
            )
            for (op, kind), indices in groups.items()
        ]
        return tuple(sorted(uncounted, key=lambda operator: (-operator.share, operator.op)))

    @property
    def warning(self) -> str | None:
        """A sentence that says that the total is too small, if work may be missing from it."""
        missed = [item for item in self.uncounted if item.may_be_much]
        if not missed:
            return None
        names = ", ".join(item.op.removesuffix(".default") for item in missed)
        share = percent(sum_in_order(item.share for item in missed))
        return (
            f"the total is too small: {self.convention.id} has no rule for {names} ({share} of the "
            "elements that the model reads and writes)"
        )

    def _all_nodes(self) -> Iterator[tuple[Node, Ops | None]]:
        """Return the nodes of the forward pass, then those of the backward pass, with their ops."""
        yield from zip(self.graph.nodes, self.ops, strict=True)
        if self.graph.backward is not None:
            yield from zip(self.graph.backward.nodes, self.backward_ops, strict=True)

    def _rows(self, name_of: Callable[[Node], str]) -> list[Row]:
        groups: dict[str, list[Ops | None]] = {}
        for node, ops in self._all_nodes():
            if node.kind not in NO_ARITHMETIC:
                groups.setdefault(name_of(node), []).append(ops)
        return [
            Row(
                name=name,
                nodes=len(group),
                ops=_sum(group),
                ruled=any(ops is not None for ops in group),
            )
            for name, group in groups.items()
        ]


def count(graph: Graph, convention: Convention) -> Count:
    """Count the operations of ``graph`` by ``convention``, once for each convention."""
    known: Count | None = graph.counts.get(convention)
    if known is None:
        known = graph.counts[convention] = Count(
            graph, convention, convention.count_nodes(graph), _backward_ops(graph, convention)
        )
    return known


def _backward_ops(graph: Graph, convention: Convention) -> tuple[Ops | None, ...]:
    """Return the operations of the nodes that run only in the backward pass.

    A convention whose backward operations are a multiple of the forward ones has counted them, and
    so has a formula, which applies to whole models.
    """
    if graph.backward is None or graph.backward_graph is None:
        return ()
    if convention.formula is not None:
        return (Ops(),) * len(graph.backward.nodes)
    counted = convention.count_nodes(graph.backward_graph)
    return tuple(
        ops if ops is None else _in_backward_pass(ops, node, convention)
        for ops, node in zip(counted, graph.backward.nodes, strict=True)
    )


def _in_backward_pass(ops: Ops, node: BackwardNode, convention: Convention) -> Ops:
    gradients = ops.backward if convention.counts_gradients and node.visited else 0
    if node.phase == "recompute":
        return Ops(backward=gradients, recompute=ops.forward)
    return Ops(backward=ops.forward + gradients if convention.counts_gradients else 0)


def _notes(graph: Graph) -> Iterator[str]:
    if graph.parameters and not any(graph.values[index].grad for index in graph.outputs):
        outputs = "none of the model's outputs has" if graph.outputs else "no output tensor has"
        yield (
            f"there is no backward pass: {outputs} a gradient, though the model has trainable "
            "parameters; let forward return the tensors that the loss depends on, not indices "
            "(argmax), detached tensors or results of torch.no_grad"
        )
    if graph.backward is not None and graph.backward.failure is not None:
        yield (
            "the backward pass does not run on the meta device, so its count follows from the "
            "forward pass; operators that run only in the backward pass are missing: "
            + graph.backward.failure
        )

    nodes = (*graph.nodes, *(graph.backward.nodes if graph.backward else ()))
    formulas = {node.op: node.attributes[FORMULA] for node in nodes if FORMULA in node.attributes}
    for op, origin in sorted(formulas.items()):
        yield f"the operations of {op} are by a formula that {origin} registered with torch"


def _share(amounts: Sequence[int], indices: Sequence[int]) -> float:
    """Return the share of the nodes ``indices`` in the amounts of all nodes."""
    return sum(amounts[index] for index in indices) / (sum(amounts) or 1)


def _sum(node_ops: Iterable[Ops | None]) -> Ops:
    total = Ops()
    for ops in node_ops:
        if ops is not None:
            total += ops
    return total
