"""AIPerf's analytic operation counts: tables I and II of the paper, and its original program.

A multiply-accumulate counts 2; an addition, subtraction, multiplication or comparison 1; a division
or square root 4; a special function 8. The tables are per image and include the parameter update in
the backward count of each image, so the update is multiplied by the batch size as well.

``aiperf`` follows tables I and II as printed. ``aiperf-original`` counts like the authors' program,
which alone reproduces table III: it omits the gradient of an input that needs none (that of the
first convolution), counts n−1 additions for a sum of n, and 36 operations per image for the
backward pass of a batch normalization.

The tables know no transformers. In a model that looks up tokens, what they do not list has the
weights of the operations that it consists of (``_FORWARD_ON_TOKENS``), a product of activations
costs as much again for the gradient of each factor, and every parameter is updated once. Other
networks are counted as published.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from vflops.counting.conventions.base import Convention, Ops, macc, new_parameters, only_moves
from vflops.record.formats.graph import Graph, Node

MACC, SIMPLE, DIVIDE, SPECIAL = 2, 1, 4, 8

_WEIGHT_OF = {
    **dict.fromkeys("relu add sub rsub mul neg abs maximum minimum clamp square".split(), SIMPLE),
    **dict.fromkeys("div sqrt reciprocal".split(), DIVIDE),
    **dict.fromkeys("exp exp2 expm1 log log2 log1p pow sin cos erf sigmoid tanh".split(), SPECIAL),
}
_BATCH_NORMS = frozenset(
    "native_batch_norm _native_batch_norm_legit cudnn_batch_norm miopen_batch_norm "
    "_batch_norm_with_update".split()
)
_ORIGINAL_BATCH_NORM_BACKWARD = 36


def _count(graph: Graph, index: int, *, original: bool) -> Ops | None:
    node = graph.nodes[index]
    if node.kind in ("convolution", "dense"):
        return replace(
            _weighted_sum(graph, node, skip_unneeded=original), update=_update(graph, index)
        )
    forward = _FORWARD.get(node.kind)
    ops = forward(graph, node, original) if forward else None
    if original and ops is not None and node.kind == "normalization":
        return Ops(ops.forward, backward=_ORIGINAL_BATCH_NORM_BACKWARD * graph.batch)
    if not graph.looks_up_tokens:
        return ops
    if ops is None:
        ops = _on_tokens(graph, node, original=original)
    return None if ops is None else replace(ops, update=_update(graph, index))


def _weighted_sum(graph: Graph, node: Node, *, skip_unneeded: bool) -> Ops:
    """Return the counts by tables I and II: each gradient costs as much as the forward pass."""
    forward_ops = MACC * macc(graph, node)
    needs_input_gradient = graph.inputs_of(node)[0].grad or not skip_unneeded
    return Ops(forward=forward_ops, backward=forward_ops * (2 if needs_input_gradient else 1))


def _update(graph: Graph, index: int) -> int:
    return MACC * new_parameters(graph, index) * graph.batch


def _on_tokens(graph: Graph, node: Node, *, original: bool) -> Ops | None:
    """Return the counts of what the tables do not list, in a model on tokens."""
    if node.kind == "product":
        return _weighted_sum(graph, node, skip_unneeded=original)
    if node.kind == "embedding" or only_moves(node):
        return Ops()
    forward = _FORWARD_ON_TOKENS.get(node.kind)
    return forward(graph, node, original) if forward else None


def _normalization(graph: Graph, node: Node, original: bool) -> Ops | None:
    if node.attributes["function"] not in _BATCH_NORMS:
        return None
    return Ops(forward=graph.inputs_of(node)[0].elements * (MACC + SIMPLE + DIVIDE))


def _elementwise(graph: Graph, node: Node, original: bool) -> Ops | None:
    weight = _WEIGHT_OF.get(str(node.attributes["function"]))
    return None if weight is None else Ops(forward=graph.output_of(node).elements * weight)


def _max_pool(graph: Graph, node: Node, original: bool) -> Ops | None:
    kernel = node.attributes["kernel"]
    assert isinstance(kernel, tuple)
    return Ops(forward=graph.output_of(node).elements * math.prod(kernel) * SIMPLE)


def _global_pool(graph: Graph, node: Node, original: bool) -> Ops | None:
    planes = graph.output_of(node).elements
    additions = graph.inputs_of(node)[0].elements - (planes if original else 0)
    return Ops(forward=additions * SIMPLE + planes * DIVIDE)


def _softmax(graph: Graph, node: Node, original: bool) -> Ops | None:
    scores = graph.output_of(node)
    dim = node.attributes.get("dim", -1)
    dim_size = scores.shape[dim] if scores.shape and isinstance(dim, int) else 1
    additions = scores.elements - (scores.elements // max(dim_size, 1) if original else 0)
    return Ops(forward=scores.elements * (SPECIAL + DIVIDE) + additions * SIMPLE)


def _normalization_on_tokens(graph: Graph, node: Node, original: bool) -> Ops | None:
    """Return the counts of a layer normalization, per element those of a batch normalization."""
    return Ops(forward=graph.inputs_of(node)[0].elements * (MACC + SIMPLE + DIVIDE))


def _function_on_tokens(graph: Graph, node: Node, original: bool) -> Ops | None:
    weight = _WEIGHT_ON_TOKENS.get(str(node.attributes["function"]))
    return None if weight is None else Ops(forward=graph.output_of(node).elements * weight)


def _reduction(graph: Graph, node: Node, original: bool) -> Ops | None:
    """Return one addition or comparison per element, and a division for each mean."""
    results = graph.output_of(node).elements
    elements = graph.inputs_of(node)[0].elements - (results if original else 0)
    divisions = results if node.attributes.get("function") == "mean" else 0
    return Ops(forward=elements * SIMPLE + divisions * DIVIDE)


def _loss(graph: Graph, node: Node, original: bool) -> Ops | None:
    return Ops(forward=graph.output_of(node).elements * SIMPLE)


_FORWARD: dict[str, Callable[[Graph, Node, bool], Ops | None]] = {
    "normalization": _normalization,
    "activation": _elementwise,
    "elementwise": _elementwise,
    "max-pool": _max_pool,
    "global-pool": _global_pool,
    "softmax": _softmax,
}
_WEIGHT_ON_TOKENS = {"gelu": SPECIAL + SIMPLE, "silu": SPECIAL + SIMPLE, "rsqrt": 2 * DIVIDE}
"""GELU and SiLU multiply their input by a special function of it; rsqrt divides by a root."""
_FORWARD_ON_TOKENS: dict[str, Callable[[Graph, Node, bool], Ops | None]] = {
    "normalization": _normalization_on_tokens,
    "activation": _function_on_tokens,
    "elementwise": _function_on_tokens,
    "reduction": _reduction,
    "loss": _loss,
}

AIPERF = Convention(
    id="aiperf",
    version=1,
    title="AIPerf, as printed",
    source="AIPerf, tables I and II",
    rule=lambda graph, index: _count(graph, index, original=False),
)
AIPERF_ORIGINAL = Convention(
    id="aiperf-original",
    version=1,
    title="AIPerf, as its program counts",
    source="AIPerf's public code; table III",
    rule=lambda graph, index: _count(graph, index, original=True),
)
