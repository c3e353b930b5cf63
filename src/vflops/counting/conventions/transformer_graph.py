"""Finds the parts of a transformer in its operation graph: tokens, weights, attention, routers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from vflops.counting.conventions.base import macc
from vflops.counting.conventions.graph_edges import PRODUCTS, GraphEdges
from vflops.errors import UsageError
from vflops.record.formats.graph import CAUSAL, NO_ARITHMETIC, Graph, Node

_TRIANGLES = frozenset({"tril", "triu"})
_ORDERS = frozenset({"ge", "gt", "le", "lt"})
_CHOICES = frozenset({"topk", "argmax"})

_OTHER_CONVENTION = "count it by the convention executed, which applies to any model"


@dataclass(frozen=True)
class AttentionProduct:
    """One of the two matrix products of attention: queries with keys, or weights with values."""

    multiply_adds: int
    causal: bool | None
    """Whether a causal mask applies; None if the graph does not show what its mask contains."""


def token_count(graph: Graph) -> int | None:
    """Return the number of tokens in a batch; None if the model does not look up tokens."""
    counts = _token_counts(graph, GraphEdges(graph))
    return counts.pop() if len(counts) == 1 else None


class TransformerGraph:
    """A graph of a transformer, all of whose parameters are trained on tokens.

    Raises ``UsageError`` if it is not one.
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._edges = GraphEdges(graph)
        self.tokens = self._require_tokens()
        self._require_all_trained()
        self.attention = self._find_attention()
        """The products of attention, by the index of their node."""
        if not self.attention:
            raise UsageError(
                f"model {graph.model} has no attention: no product of two activations leads "
                "through a softmax to another one",
                hint=_OTHER_CONVENTION,
            )

    def describe(self, index: int) -> str:
        """Return the name of a node for messages: the module that contains it."""
        return self._graph.nodes[index].scope or f"model {self._graph.model}"

    def _require_tokens(self) -> int:
        counts = _token_counts(self._graph, self._edges)
        if not counts:
            raise UsageError(
                f"model {self._graph.model} has no tokens: no embedding looks up one of its inputs",
                hint=f"give token ids, for example --input 2048:int64, or {_OTHER_CONVENTION}",
            )
        if len(counts) > 1:
            sizes = " and ".join(str(count) for count in sorted(counts))
            raise UsageError(
                f"model {self._graph.model} has inputs of {sizes} tokens; "
                "operations per token need one number",
                hint=f"give inputs of the same length, or {_OTHER_CONVENTION}",
            )
        return counts.pop()

    def _require_all_trained(self) -> None:
        used = {value.parameter for value in self._graph.values if value.parameter is not None}
        frozen = sorted(used - set(self._graph.parameters))
        if frozen:
            raise UsageError(
                f"model {self._graph.model} has parameters that are not trained, such as "
                f"{frozen[0]}; the formula assumes that all are",
                hint=_OTHER_CONVENTION,
            )

    @cached_property
    def weight_products(self) -> Mapping[int, int]:
        """Multiply-adds of the products with weights, by the index of their node."""
        return {
            index: macc(self._graph, node)
            for index, node in enumerate(self._graph.nodes)
            if node.kind in PRODUCTS and self._edges.reads_parameter(node.inputs[:2])
        }

    @cached_property
    def routers(self) -> frozenset[int]:
        """Products whose results a top-k or argmax chooses experts from."""
        found: set[int] = set()
        for node in self._graph.nodes:
            if _function(node) in _CHOICES and self._leads_to_a_product(node):
                behind = self._edges.behind(node.inputs[0])
                found.update(index for index in behind if index in self.weight_products)
        return frozenset(found)

    @cached_property
    def parameter_uses(self) -> Mapping[int, int]:
        """Parameters that tokens use, summed over the tokens, by the index of the node.

        A token uses a parameter at most once, and only looks up a row of an embedding. An expert
        is used by the tokens that are routed to it.
        """
        return self._charge_uses()[0]

    @cached_property
    def parameter_uses_if_all(self) -> Mapping[int, int]:
        """The same if every token used every parameter: embeddings and all experts.

        A parameter that no operator with arithmetic reads counts at the first attention product.
        """
        charged, unused = self._charge_uses()
        first_use = self._first_use()
        for name, uses in unused.items():
            index = first_use.get(name, next(iter(self.attention)))
            charged[index] = charged.get(index, 0) + uses
        return charged

    def _charge_uses(self) -> tuple[dict[int, int], dict[str, int]]:
        """Return the uses of parameters by node, and by name what is left of tokens × elements."""
        left = {name: size * self.tokens for name, size in self._graph.parameters.items()}
        charged: dict[int, int] = {}
        for index, name, uses in self._uses():
            counted = min(uses, left[name])
            left[name] -= counted
            charged[index] = charged.get(index, 0) + counted
        return charged, left

    def _uses(self) -> Iterator[tuple[int, str, int]]:
        for index, node in enumerate(self._graph.nodes):
            if node.kind in NO_ARITHMETIC or node.kind in ("embedding", "other"):
                continue
            origins = [self._edges.origins[value] for value in node.inputs]
            if None not in origins:
                continue  # it prepares a parameter, for example casts it
            is_product = node.kind in PRODUCTS
            for position, origin in enumerate(origins):
                multiplied = is_product and position < 2
                for name in sorted(origin or ()):
                    result = self._graph.output_of(node)
                    yield index, name, macc(self._graph, node) if multiplied else result.elements

    def _first_use(self) -> dict[str, int]:
        first: dict[str, int] = {}
        for index, node in enumerate(self._graph.nodes):
            if node.kind not in NO_ARITHMETIC:
                for value in node.inputs:
                    for name in self._edges.origins[value] or ():
                        first.setdefault(name, index)
        return first

    def _find_attention(self) -> dict[int, AttentionProduct]:
        found: dict[int, AttentionProduct] = {}
        for node in self._graph.nodes:
            if node.kind != "softmax" or node.attributes["function"] == "_log_softmax":
                continue
            behind = self._edges.behind(node.inputs[0])
            scores = [index for index in behind if self._multiplies_activations(index)]
            ahead = self._edges.ahead(node.outputs)
            mixed = [index for index in ahead if self._multiplies_activations(index)]
            if scores and mixed:
                causal = self._is_causal(behind, scores)
                for index in (*scores, *mixed):
                    multiply_adds = macc(self._graph, self._graph.nodes[index])
                    found[index] = AttentionProduct(multiply_adds, causal)
        return dict(sorted(found.items()))

    def _multiplies_activations(self, index: int) -> bool:
        node = self._graph.nodes[index]
        return node.kind == "product" and not self._edges.reads_parameter(node.inputs[:2])

    def _leads_to_a_product(self, node: Node) -> bool:
        return any(
            self._graph.nodes[index].kind in PRODUCTS for index in self._edges.ahead(node.outputs)
        )

    def _is_causal(self, behind: Iterable[int], scores: Iterable[int]) -> bool | None:
        """Whether a mask that joins the scores on their way to the softmax is causal."""
        nodes = self._graph.nodes
        scored = {output for index in scores for output in nodes[index].outputs}
        joined: list[tuple[Node, int]] = []
        for index in sorted(behind):
            node = nodes[index]
            if index not in scores and scored.intersection(node.inputs):
                scored.update(node.outputs)
                joined += [(node, value) for value in node.inputs if self._is_matrix(value)]
        verdicts = [
            self._is_causal_mask(node, value) for node, value in joined if value not in scored
        ]
        return True if True in verdicts else None if None in verdicts else False

    def _is_matrix(self, value: int) -> bool:
        shape = self._graph.values[value].shape
        return len(shape) >= 2 and min(shape[-2:]) > 1

    def _is_causal_mask(self, node: Node, value: int) -> bool | None:
        """Whether the mask ``value`` of ``node`` hides the future; None if it cannot be seen.

        A factor hides no scores from the softmax, and a learned bias none at all.
        """
        known = node.attributes.get(CAUSAL)
        if isinstance(known, bool):
            return known and _function(node) != "mul"
        behind = self._edges.behind(value)
        if any(self._graph.nodes[index].attributes.get(CAUSAL) for index in behind):
            return True
        if any(self._makes_triangle(self._graph.nodes[index]) for index in behind):
            return None
        learned = any(self._graph.nodes[index].kind == "embedding" for index in behind)
        return False if learned or self._edges.origins[value] else None

    def _makes_triangle(self, node: Node) -> bool:
        function = _function(node)
        compares_positions = function in _ORDERS and not any(
            self._edges.origins[value] is None for value in node.inputs
        )
        return function in _TRIANGLES or compares_positions


def _token_counts(graph: Graph, edges: GraphEdges) -> set[int]:
    """Return the sizes of the inputs that embeddings look up; all equal in most models."""
    lookups = (node for node in graph.nodes if node.kind == "embedding")
    indices = [value for node in lookups for value in node.inputs[1:2]]
    looked_up = (graph.values[index] for index in edges.model_inputs(indices))
    return {value.elements for value in looked_up if "int" in value.dtype}


def _function(node: Node) -> str:
    """Return the plain name of the operator: ``tril`` for ``aten.tril.default``."""
    return node.op.split(".")[1] if node.op.count(".") else node.op
