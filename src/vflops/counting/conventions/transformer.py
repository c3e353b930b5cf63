"""Conventions for transformers: operations per token from parameters and attention.

With N parameters, L layers, H heads of width Q and sequences of T tokens, PaLM counts
6·N + 12·L·H·Q·T operations per token: for each parameter and each product of attention one
multiply-add forward and two backward. H·Q is usually the width d of the model. The conventions
differ in what N holds and in whether a causal mask halves the second term:

    palm         the parameters that a token uses; lookup tables and idle experts are left out
    palm-all     all parameters
    causal       like palm, with half the attention where the mask is causal
    causal-all   like palm-all, with half the attention where the mask is causal
    megatron     the weights of products, without routers; half of all attention
    maxtext      the weights of products; half of all attention

All terms are found in the captured graph, and each is counted at its own node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from vflops.counting.conventions.base import Convention, Formula, Ops
from vflops.counting.conventions.transformer_graph import TransformerGraph
from vflops.errors import UsageError
from vflops.record.formats.graph import Graph

MultiplyAdds = Mapping[int, int]
"""Multiply-adds of the forward pass, by the index of the node."""


def _formula(
    weights: Callable[[TransformerGraph], MultiplyAdds],
    halved_attention: Callable[[TransformerGraph], Iterable[int]],
) -> Formula:
    def count(graph: Graph) -> dict[int, Ops]:
        transformer = TransformerGraph(graph)
        forward = {index: 2 * count for index, count in weights(transformer).items()}
        halved = frozenset(halved_attention(transformer))
        for index, product in transformer.attention.items():
            ops = product.multiply_adds * (1 if index in halved else 2)
            forward[index] = forward.get(index, 0) + ops
        return {index: Ops(forward=ops, backward=2 * ops) for index, ops in forward.items()}

    return count


def _none(transformer: TransformerGraph) -> Iterable[int]:
    return ()


def _all(transformer: TransformerGraph) -> Iterable[int]:
    return transformer.attention


def _causal(transformer: TransformerGraph) -> Iterable[int]:
    for index, product in transformer.attention.items():
        if product.causal is None:
            raise UsageError(
                f"the attention mask of {transformer.describe(index)} is an input, a buffer "
                "or changed in place, so its contents are not known: it may or may not be causal",
                hint="use scaled_dot_product_attention(…, is_causal=True), or make the mask with "
                "torch.tril in forward; palm counts all of the attention, megatron half of it",
            )
        if product.causal:
            yield index


def _products_without_routers(transformer: TransformerGraph) -> MultiplyAdds:
    return {
        index: count
        for index, count in transformer.weight_products.items()
        if index not in transformer.routers
    }


PALM = Convention(
    id="palm",
    version=1,
    title="PaLM: 6·N + 12·L·H·Q·T per token",
    source="PaLM, appendix B, as torchtitan and nanoGPT count N: without lookups, active experts",
    formula=_formula(lambda transformer: transformer.parameter_uses, _none),
)
PALM_ALL = Convention(
    id="palm-all",
    version=1,
    title="PaLM with all parameters",
    source="like palm; N has the embeddings and all experts",
    formula=_formula(lambda transformer: transformer.parameter_uses_if_all, _none),
)
CAUSAL = Convention(
    id="causal",
    version=1,
    title="PaLM with half of causal attention",
    source="like palm; 6·L·H·Q·T where the mask is causal",
    formula=_formula(lambda transformer: transformer.parameter_uses, _causal),
)
CAUSAL_ALL = Convention(
    id="causal-all",
    version=1,
    title="PaLM with all parameters and half of causal attention",
    source="MaxText until May 2024",
    formula=_formula(lambda transformer: transformer.parameter_uses_if_all, _causal),
)
MEGATRON = Convention(
    id="megatron",
    version=1,
    title="Megatron-LM",
    source="its function num_floating_point_operations: products without routers, half attention",
    formula=_formula(_products_without_routers, _all),
)
MAXTEXT = Convention(
    id="maxtext",
    version=1,
    title="MaxText",
    source="its function calculate_tflops_training_per_device since July 2025: products, half "
    "attention",
    formula=_formula(lambda transformer: transformer.weight_products, _all),
)
