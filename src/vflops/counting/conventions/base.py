"""The type of a counting convention, and counts that several conventions share."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from vflops.record.formats.graph import NO_ARITHMETIC, OPERATIONS, Graph, Node


@dataclass(frozen=True)
class Ops:
    """Operations of one node for one batch; "BP" in the papers is ``backward`` plus ``update``."""

    forward: int = 0
    backward: int = 0
    update: int = 0
    recompute: int = 0
    """Forward operations that activation checkpointing repeats; a rule does not return them."""

    @property
    def total(self) -> int:
        """The sum of forward, backward and update, without recomputation."""
        return self.forward + self.backward + self.update

    def __add__(self, other: Ops) -> Ops:
        return Ops(
            self.forward + other.forward,
            self.backward + other.backward,
            self.update + other.update,
            self.recompute + other.recompute,
        )


Rule = Callable[[Graph, int], Ops | None]
"""Returns the operations of the node with a given index; None if the convention does not cover
it."""
Formula = Callable[[Graph], Mapping[int, Ops]]
"""Returns the operations of all nodes that the convention covers, by index. It raises
``UsageError`` if the formula does not apply to the model."""


@dataclass(frozen=True)
class Convention:
    """A way of counting operations; every score records the id and the version.

    It has either a ``rule``, which counts one node at a time, or a ``formula``, which counts the
    nodes of a whole graph, for terms that depend on the model as a whole.
    """

    id: str
    version: int
    title: str
    source: str
    """The paper and table, or the program, that defines it."""
    rule: Rule | None = None
    origin: str = "vflops"
    """The package that provides it."""
    formula: Formula | None = None
    counts_gradients: bool = False
    """Whether backward operations are those of autograd, and not a multiple of the forward ones."""

    def __post_init__(self) -> None:
        if (self.rule is None) == (self.formula is None):
            raise ValueError(f"convention {self.id!r} needs either a rule or a formula")

    def count_nodes(self, graph: Graph) -> tuple[Ops | None, ...]:
        """Return the operations of each node; None if the convention does not cover it.

        Nodes without arithmetic have none.
        """
        covered = None if self.formula is None else self.formula(graph)

        none = Ops()

        def ops(index: int) -> Ops | None:
            if graph.nodes[index].kind in NO_ARITHMETIC:
                return none
            if covered is not None:
                return covered.get(index)
            assert self.rule is not None
            return self.rule(graph, index)

        return tuple(ops(index) for index in range(len(graph.nodes)))


def macc(graph: Graph, node: Node) -> int:
    """Return the multiply-accumulates of a convolution, a dense layer or a matrix product."""
    operations = node.attributes.get(OPERATIONS)
    if isinstance(operations, int):
        return operations // 2
    left, right = graph.inputs_of(node)[:2]
    result = graph.output_of(node)
    if node.kind != "convolution":
        return result.elements * left.shape[-1]
    # Weights have the shape (out, in / groups, kernel…), or (in, out / groups, kernel…) if
    # transposed. Each weight is multiplied once per output pixel, or per input pixel if transposed.
    pixels = left if node.attributes["transposed"] else result
    return pixels.shape[0] * math.prod(pixels.shape[2:]) * right.elements


def only_moves(node: Node) -> bool:
    """Whether an operator without a kind of its own copies rows, as the routing of experts does."""
    return node.op.startswith("aten.index_copy")


def new_parameters(graph: Graph, index: int) -> int:
    """Return the elements of the parameters that node ``index`` is the first to use.

    A parameter is updated once per step, even if several nodes use it.
    """
    names = {value.parameter for value in graph.inputs_of(graph.nodes[index])}
    return sum(
        graph.parameters.get(name, 0)
        for name in names
        if name is not None and graph.first_use.get(name) == index
    )
