"""Transformers of the language model: every rule set counts all of them, to the integer."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from tests.support.language_models import (
    BATCH,
    DESIGNS,
    EXPERTS,
    GPT2,
    HEADS,
    INNER,
    LENGTH,
    SCORES,
    TOKENS,
    WIDTH,
    WORDS,
    language_graph,
)
from vflops.counting.capture import InputSpec, capture
from vflops.counting.conventions import BUILT_IN, convention
from vflops.counting.conventions.base import Ops
from vflops.counting.count import count
from vflops.counting.model_parts import model_parts
from vflops.models.language.transformer import Transformer
from vflops.models.model_graph import graph_of
from vflops.record.formats.graph import Graph


def by_kind(rules: str, counted: Graph) -> dict[str, Ops]:
    return {row.name: row.ops for row in count(counted, convention(rules)).by_kind}


@pytest.mark.parametrize("name", DESIGNS)
def test_what_is_executed_is_what_torch_counts_when_it_runs(name: str) -> None:
    torch.manual_seed(0)
    model = Transformer(DESIGNS[name])
    ids = torch.randint(0, WORDS, (BATCH, LENGTH + 1))
    # FlopCounterMode has no formula for the fused attention of CPUs.
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        model(ids[:, :-1], ids[:, 1:]).mean().backward()
    found = language_graph(DESIGNS[name])
    for rules in ("executed", "executed-torch"):
        assert count(found, convention(rules)).total.total == counter.get_total_flops()


@pytest.mark.parametrize("name", DESIGNS)
@pytest.mark.parametrize("rules", ["hpcai500", "hpcai500-fc2", "aiperf", "aiperf-original"])
def test_the_papers_rule_sets_leave_nothing_of_a_transformer_out(name: str, rules: str) -> None:
    counted = count(language_graph(DESIGNS[name]), convention(rules))
    assert counted.uncounted == ()
    assert counted.warning is None


@pytest.mark.parametrize("name", DESIGNS)
def test_no_rule_set_leaves_out_operations_that_are_executed(name: str) -> None:
    for rules in BUILT_IN:
        uncounted = count(language_graph(DESIGNS[name]), rules).uncounted
        assert not [item for item in uncounted if item.may_be_much or item.executed_share]


def test_hpcai500_by_hand() -> None:
    found = by_kind("hpcai500", language_graph(GPT2))
    dense = TOKENS * (WIDTH * 3 * WIDTH + WIDTH * WIDTH + 2 * WIDTH * INNER + WIDTH * WORDS)
    attention = 2 * 2 * SCORES * (WIDTH // HEADS)
    elementwise = 3 * TOKENS * WIDTH + 2 * TOKENS * WIDTH + SCORES  # sums; scaled q, k; the mask
    expected = {
        "dense": dense,
        "product": attention,
        "softmax": SCORES + TOKENS * WORDS,
        "normalization": 3 * TOKENS * WIDTH,
        "activation": TOKENS * INNER,
        "elementwise": elementwise,
        "embedding": 0,
        "loss": TOKENS * WORDS,
        "reduction": TOKENS,
    }
    assert {kind: ops.forward for kind, ops in found.items()} == expected
    assert {kind: ops.backward for kind, ops in found.items()} == {
        kind: 2 * forward for kind, forward in expected.items()
    }
    corrected = by_kind("hpcai500-fc2", language_graph(GPT2))
    assert corrected["dense"].forward == 2 * dense
    assert corrected["product"].forward == attention


def test_aiperf_by_hand() -> None:
    found = by_kind("aiperf", language_graph(GPT2))
    dense = 2 * TOKENS * (4 * WIDTH * WIDTH + 2 * WIDTH * INNER + WIDTH * WORDS)
    attention = 2 * 2 * SCORES * (WIDTH // HEADS)
    assert (found["dense"].forward, found["dense"].backward) == (dense, 2 * dense)
    assert (found["product"].forward, found["product"].backward) == (attention, 2 * attention)
    assert found["softmax"].forward == (8 + 4 + 1) * (SCORES + TOKENS * WORDS)
    assert found["normalization"].forward == 7 * 3 * TOKENS * WIDTH
    assert found["activation"].forward == 9 * TOKENS * INNER
    assert found["reduction"].forward == TOKENS + 4
    assert found["loss"].forward == TOKENS
    assert found["embedding"].forward == 0
    parameters = (WORDS + LENGTH) * WIDTH + 4 * WIDTH * WIDTH + 2 * WIDTH * INNER + 3 * WIDTH
    assert sum(ops.update for ops in found.values()) == 2 * parameters * BATCH
    original = by_kind("aiperf-original", language_graph(GPT2))
    rows = SCORES // LENGTH + TOKENS  # one addition less for each sum
    assert original["softmax"].forward == found["softmax"].forward - rows
    assert original["reduction"].forward == found["reduction"].forward - 1
    # Of the backward pass, AIPerf's table has only the products; a batch normalization's is an
    # error of the original code, which a layer normalization does not share.
    for counted in (found, original):
        assert {kind for kind, ops in counted.items() if ops.backward} == {"dense", "product"}
    same = found.keys() - {"softmax", "reduction"}
    assert {kind: original[kind] for kind in same} == {kind: found[kind] for kind in same}
    assert original["normalization"].update == 2 * 3 * WIDTH * BATCH


class Attention(nn.Module):
    """Attention without tokens: the tables of the papers do not know it."""

    def forward(self, x: Tensor) -> Tensor:
        return (x @ x.transpose(1, 2)).softmax(-1) @ x


def test_a_model_without_tokens_is_counted_as_published() -> None:
    found = capture(Attention, [InputSpec((LENGTH, WIDTH))], name="a", batch=BATCH)
    for rules in ("hpcai500", "aiperf"):
        names = [item.op for item in count(found, convention(rules)).uncounted]
        assert "aten.bmm.default" in names


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("gpt2-124m", 124_439_808 - 12 * 11 * 768 - 768),  # released, less biases
        ("gpt2-1558m", 1_557_611_200 - 48 * 11 * 1600 - 1600),
        ("llama-1b", 1_235_814_400),
        ("llama-8b", 8_030_261_248),
    ],
)
def test_published_transformers_by_name(name: str, parameters: int) -> None:
    assert graph_of(name).parameter_count == parameters


def test_gpt2_124m_by_the_formula_of_palm() -> None:
    """6·N + 12·L·H·Q·T per token; lookups of tokens and unused rows of positions are free."""
    found = graph_of("gpt2-124m")
    used = 124_337_664 - 1024 * 768 + 768  # a token adds one row of the position table
    expected = 6 * used + 12 * 12 * 768 * 1024
    assert count(found, convention("palm")).per_token == expected
    assert count(found, convention("causal")).per_token == expected - 6 * 12 * 768 * 1024
    norms_and_positions = 25 * 768 + 768
    assert count(found, convention("megatron")).per_token == (
        6 * (used - norms_and_positions) + 6 * 12 * 768 * 1024
    )


def test_one_shape_stands_for_both_inputs_of_a_language_model() -> None:
    shorter = graph_of("llama-1b", inputs=[InputSpec((128,), "int64")])
    assert [shorter.values[index].shape for index in shorter.inputs] == [(1, 128), (1, 128)]


def shares(found: Graph) -> dict[str, int]:
    parts, counted = model_parts(found), count(found, convention("executed"))
    assert parts is not None
    total: dict[str, int] = {}
    for part, ops in zip(parts, counted.ops, strict=True):
        total[part] = total.get(part, 0) + (ops.total if ops else 0)
    return total


def test_the_parts_of_a_transformer_by_hand() -> None:
    found = shares(language_graph(replace(GPT2, layers=2)))
    attention = 3 * (2 * TOKENS * 4 * WIDTH * WIDTH + 2 * 2 * SCORES * (WIDTH // HEADS))
    assert found == {
        "embedding": 0,
        "norms and sums": 0,
        "attention": 2 * attention,
        "MLP": 2 * 3 * 2 * TOKENS * 2 * WIDTH * INNER,
        "output layer and loss": 3 * 2 * TOKENS * WIDTH * WORDS,
    }


def test_experts_are_a_part_of_their_own() -> None:
    found = shares(language_graph(EXPERTS))
    assert found["experts"] > 0 and "MLP" not in found


def test_other_models_have_no_parts() -> None:
    assert model_parts(graph_of("resnet50")) is None
    assert model_parts(capture(Attention, [InputSpec((4, 8))], name="a")) is None
