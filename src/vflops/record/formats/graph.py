"""The operation graph: the operators that a model applies to one batch, independent of torch.

``vflops.counting.capture`` writes it, and counting conventions read it. ``Kind`` is the kind of a
node. The order of the operands is fixed for the kinds that conventions inspect:

    convolution   input, weight[, bias]      attributes: kernel, stride, padding, dilation,
                                             groups, transposed
    dense         input, weight[, bias]      a product with a parameter: rows×in · in×out
    product       left, right[, addend]      a product of two activations
                                             attributes of other products than left · right:
                                             operations[, flop_counter, formula]
    max-pool, average-pool                   attributes: kernel
    activation, elementwise, normalization   attributes: function
"""

from __future__ import annotations

import json
import math
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from vflops.record.files.document import Data, Document
from vflops.record.formats.bounded_numbers import NonNegative, Positive
from vflops.record.formats.divisible import Divisible

Kind = Literal[
    "convolution",
    "dense",
    "product",
    "normalization",
    "activation",
    "elementwise",
    "max-pool",
    "average-pool",
    "global-pool",
    "softmax",
    "loss",
    "reduction",
    "embedding",
    "interpolation",
    "random",
    "copy",
    "layout",
    "bookkeeping",
    "other",
]

NO_ARITHMETIC: frozenset[Kind] = frozenset({"copy", "layout", "bookkeeping"})
"""Kinds that move, rename or index data; no convention counts operations for them."""

_Number = Annotated[int, Field(ge=-(10**40), le=10**40)]
Attribute = bool | _Number | float | str | tuple[_Number, ...]


_REQUIRED: dict[Kind, tuple[int, tuple[tuple[str, type], ...]]] = {
    "convolution": (2, (("kernel", tuple), ("groups", int), ("transposed", bool))),
    "dense": (2, ()),
    "product": (2, ()),
    "normalization": (1, (("function", str),)),
    "activation": (1, (("function", str),)),
    "elementwise": (1, (("function", str),)),
    "max-pool": (1, (("kernel", tuple),)),
    "average-pool": (1, (("kernel", tuple),)),
    "global-pool": (1, ()),
    "softmax": (1, (("function", str),)),
}
"""The number of operands and the attributes that conventions rely on, by kind."""

_PRODUCTS: frozenset[Kind] = frozenset({"dense", "product"})

MAX_ELEMENTS = 2**62

OPERATIONS = "operations"
"""The attribute with the forward operations of a node, if they do not follow from its operands."""
FLOP_COUNTER = "flop_counter"
"""The attribute with what FlopCounterMode counts instead, if it differs."""
FORMULA = "formula"
"""The attribute that names who provided the formula for ``OPERATIONS``, if not vflops."""
CAUSAL = "causal"
"""The attribute of an operator with a constant mask: whether the mask hides the future."""


def _has_type(value: object, kind: type) -> bool:
    if kind is int:
        return isinstance(value, int) and not isinstance(value, bool) and value > 0
    return isinstance(value, kind)


def _check_attributes(number: int, node: Node) -> None:
    operands, attributes = _REQUIRED.get(node.kind, (0, ()))
    given = node.attributes
    missing = [name for name, kind in attributes if not _has_type(given.get(name), kind)]
    for name in (OPERATIONS, FLOP_COUNTER):
        value = given.get(name, 0)
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise ValueError(f"node {number} ({node.op}) has {name} {value!r}")
    results = 0 if node.kind in ("other", "bookkeeping", "copy") else 1
    if missing or len(node.inputs) < operands or len(node.outputs) < results:
        what = f"attribute {missing[0]}" if missing else "operands or results"
        raise ValueError(f"node {number} ({node.kind}) lacks {what}")


class Value(Data):
    """A tensor that flows along an edge."""

    shape: tuple[Annotated[int, Field(ge=0)], ...] = Field(max_length=64)
    dtype: str
    grad: bool
    """Whether training needs its gradient."""
    parameter: str | None = None
    """The name of the parameter, if the tensor is a parameter or a view of one."""

    @property
    def elements(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)


class Node(Data):
    """One operator with its operands and results, as indices into the graph's values."""

    kind: Kind
    op: str
    """The name of the operator in the framework."""
    scope: str
    """The dotted path of the module that called the operator; empty for the model itself."""
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    attributes: dict[str, Attribute] = Field(default={})

    @classmethod
    def unchecked(cls, **fields: Any) -> Self:
        """Return a node with all its fields, not validated; faster than ``model_construct``."""
        node = cls.__new__(cls)
        object.__setattr__(node, "__dict__", fields)
        object.__setattr__(node, "__pydantic_fields_set__", set(fields))
        object.__setattr__(node, "__pydantic_extra__", None)
        object.__setattr__(node, "__pydantic_private__", None)
        return node


class BackwardNode(Node):
    """An operator that ran in the backward pass and does not follow from a forward operator."""

    phase: Literal["backward", "recompute"]
    """``recompute`` if it repeats the forward pass, as activation checkpointing does."""
    visited: bool = False
    """Whether gradients flow through it, because it ran with gradients of its own."""


class BackwardPass(Data):
    """What the backward pass does beyond what the forward pass shows."""

    visited: tuple[int, ...]
    """Indices of the forward nodes whose gradients follow from their operands."""
    nodes: tuple[BackwardNode, ...] = ()
    """Operators that custom ``torch.autograd.Function`` classes call, and recomputation."""
    failure: str | None = None
    """Why the backward pass could not be run, if so; ``nodes`` are not known then."""


class Graph(Document):
    """``graphs/<model>.json``: the forward pass of one batch, in the order of execution."""

    schema_name: ClassVar[str] = "vflops.graph"

    model: str
    framework: str
    batch: Positive
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    parameters: dict[str, NonNegative]
    """Number of elements of each trainable parameter, including unused ones."""
    values: tuple[Value, ...]
    nodes: tuple[Node, ...]
    backward: BackwardPass | None = None
    """None if the backward pass follows from the forward pass, as for most models."""
    divisible: Divisible | None = None
    """How ranks can share the model; None if that is not known."""

    @model_validator(mode="after")
    def _nodes_are_complete(self) -> Self:
        distinct = {id(value): value for value in self.values}.values()  # many are one object
        if any(value.elements > MAX_ELEMENTS for value in distinct):
            raise ValueError(f"a tensor has more than {MAX_ELEMENTS} elements")
        for number, node in enumerate((*self.nodes, *self._backward_only)):
            _check_attributes(number, node)
        return self

    @model_validator(mode="after")
    def _edges_exist(self) -> Self:
        known = set(range(len(self.values)))
        ready = known.difference(*(node.outputs for node in self.nodes))
        for number, node in enumerate(self.nodes):
            if not ready.issuperset(node.inputs):
                raise ValueError(
                    f"node {number} ({node.op}) uses a value that no earlier node produced"
                )
            ready.update(node.outputs)
        if not known.issuperset(ready):
            raise ValueError("a node produces a value that the graph lacks")
        if not set(self.outputs) <= ready or not set(self.inputs) <= ready:
            raise ValueError("an input or output of the graph is not one of its values")
        if not all(known.issuperset((*node.inputs, *node.outputs)) for node in self._backward_only):
            raise ValueError("a node of the backward pass uses a value that the graph lacks")
        if self.backward and not set(self.backward.visited) <= set(range(len(self.nodes))):
            raise ValueError("the backward pass visits a node that the graph lacks")
        for number, node in enumerate((*self.nodes, *self._backward_only)):
            if node.kind not in _PRODUCTS and node.kind != "convolution":
                continue
            rank = 3 if node.kind == "convolution" else 1
            used = (*node.inputs[:2], *node.outputs[:1]) if rank == 3 else node.inputs[:1]
            if any(len(self.values[index].shape) < rank for index in used):
                raise ValueError(
                    f"node {number} ({node.kind}) has an operand of too few dimensions"
                )
        return self

    def inputs_of(self, node: Node) -> list[Value]:
        """Return the operands of ``node``."""
        return [self.values[index] for index in node.inputs]

    def output_of(self, node: Node) -> Value:
        """Return the first result of ``node``, which is usually its only one."""
        return self.values[node.outputs[0]]

    @property
    def _backward_only(self) -> tuple[BackwardNode, ...]:
        return self.backward.nodes if self.backward else ()

    @cached_property
    def backward_graph(self) -> Graph | None:
        """The operators of the backward pass that do not follow from the forward pass, if any.

        Its nodes are ``backward.nodes``, so that conventions count them like any others.
        """
        if not self._backward_only:
            return None
        numbers = [number for number, node in enumerate(self._backward_only) if node.visited]
        return Graph.model_construct(
            model=self.model,
            framework=self.framework,
            batch=self.batch,
            inputs=(),
            outputs=(),
            parameters={},  # the forward pass has their update
            values=self.values,
            nodes=self._backward_only,
            backward=BackwardPass.model_construct(visited=tuple(numbers)),
        )

    @cached_property
    def counts(self) -> dict[object, Any]:
        """Counts of the operations, by convention; a place to keep them, for the graph is fixed."""
        return {}

    @cached_property
    def elements_touched(self) -> tuple[int, ...]:
        """For each node, the number of elements that it reads and writes."""
        sizes = [value.elements for value in self.values]
        return tuple(
            sum(sizes[index] for index in (*node.inputs, *node.outputs)) for node in self.nodes
        )

    @cached_property
    def backward_nodes(self) -> frozenset[int]:
        """Indices of the nodes that the backward pass visits: those that gradients flow through."""
        if self.backward is not None:
            return frozenset(self.backward.visited)
        wanted = {index for index in self.outputs if self.values[index].grad}
        visited: set[int] = set()
        for number in range(len(self.nodes) - 1, -1, -1):
            node = self.nodes[number]
            if not wanted.isdisjoint(node.outputs):
                visited.add(number)
                wanted.update(index for index in node.inputs if self.values[index].grad)
        return frozenset(visited)

    @cached_property
    def looks_up_tokens(self) -> bool:
        """Whether an embedding looks something up, as that of a language model does for tokens."""
        return any(node.kind == "embedding" for node in self.nodes)

    @cached_property
    def first_use(self) -> dict[str, int]:
        """For each parameter, the index of the first node that uses it."""
        first: dict[str, int] = {}
        for number, node in enumerate(self.nodes):
            if node.kind in NO_ARITHMETIC:
                continue
            for value in self.inputs_of(node):
                if value.parameter is not None:
                    first.setdefault(value.parameter, number)
        return first

    @property
    def parameter_count(self) -> int:
        """The number of elements in all trainable parameters."""
        return sum(self.parameters.values())

    def to_json(self) -> str:
        """Return the text of the file: one value or node per line, so that diffs are readable."""
        data = self.model_dump(mode="json")
        for key in ("backward", "divisible"):
            if data[key] is None:
                del data[key]  # files of earlier releases have none
        lines = [f'  "schema": "{self.schema_name}/{self.schema_version}"']
        for key in sorted(data):
            if key in ("values", "nodes"):
                lines.append(f'  "{key}": [\n{_rows(data[key])}\n  ]')
            else:
                lines.append(f'  "{key}": {json.dumps(data[key], sort_keys=True)}')
        return "{\n" + ",\n".join(lines) + "\n}\n"


def _rows(items: list[dict[str, object]]) -> str:
    return ",\n".join(f"    {json.dumps(item, sort_keys=True)}" for item in items)
