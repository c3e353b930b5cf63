"""The conventions for transformers: published figures, and formulas written out by hand."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.support.networks import CASES
from tests.support.paths import DOCS
from tests.support.published_transformers import (
    LLAMA2_7B,
    QWEN3_30B_A3B,
    Decoder,
    DecoderConfig,
    llama2_7b,
    qwen3_30b_a3b,
)
from vflops.counting.capture import InputSpec, capture
from vflops.counting.conventions import TRANSFORMER, Convention, convention
from vflops.counting.count import Count, count
from vflops.errors import UsageError
from vflops.record.formats.graph import Graph
from vflops.testing.conventions import ConventionConformance, sample_transformer

WIDTH, HEADS, LENGTH, BATCH, WORDS = 32, 4, 16, 3, 50
ATTENTION = 12 * WIDTH * LENGTH
"""12·L·H·Q·T of a model with one layer, whose heads together are as wide as the model."""


def on_tokens(build: Callable[[], nn.Module], length: int, batch: int) -> Graph:
    return capture(build, [InputSpec((length,), "int64")], name="model", batch=batch)


def by(rules: str, graph: Graph) -> Count:
    return count(graph, convention(rules))


@pytest.fixture(scope="module")
def qwen() -> Graph:
    return on_tokens(qwen3_30b_a3b, 8192, 1)


@pytest.fixture(scope="module")
def llama() -> Graph:
    return on_tokens(llama2_7b, 2048, 12)  # the defaults of MaxText's base.yml


def test_torchtitans_counts_of_qwen3(qwen: Graph) -> None:
    assert qwen.parameter_count == 30_532_122_624
    assert by("palm", qwen).per_token == 37_578_559_488
    # Counts all parameters, and one of the two products of attention instead of half of each.
    assert by("causal-all", qwen).per_token == 192_856_412_160


def test_maxtexts_counts_of_llama2(llama: Graph) -> None:
    assert by("executed", llama).total.total == 1_053_418_038_755_328  # published as 1053.4 TFLOP
    assert by("causal-all", llama).total.total == 1_033_202_231_672_832  # as 1033.2 before
    # Published to the last digit: 41.00620025856 TFLOP for 4 sequences of 256 tokens.
    short = on_tokens(llama2_7b, 256, 4)
    assert by("executed", short).total.total == 41_006_200_258_560


def test_maxtexts_change_to_causal_attention() -> None:
    """Published for 4 sequences of 8192 tokens: 1721.22 TFLOP before, 1510.11 after."""
    one, two = (
        on_tokens(partial(Decoder, LLAMA2_7B.with_layers(layers)), 8192, 4) for layers in (1, 2)
    )
    for rules, operations in (
        ("executed", 1_721_216_733_806_592),
        ("maxtext", 1_510_110_501_273_600),
    ):
        first, second = by(rules, one).total.total, by(rules, two).total.total
        assert first + (LLAMA2_7B.layers - 1) * (second - first) == operations


def test_the_documentation_has_these_figures(llama: Graph, qwen: Graph) -> None:
    page = (DOCS / "explanation" / "counting.md").read_text()
    table = page[page.index("| model, batch × sequence |") :].split("\n\n")[0]
    rows = [[cell.strip(" `") for cell in row.strip("|").split("|")] for row in table.splitlines()]
    checked = 0
    for model, _, _, rules, operations in rows[2:]:
        figure = int(operations.replace(",", ""))
        if model.startswith("Qwen3"):
            assert by(rules, qwen).per_token == figure
        elif model.endswith("12 × 2048"):
            assert by(rules, llama).total.total == figure
        else:
            continue  # tested on graphs of their own
        checked += 1
    assert checked == 4


def test_only_routers_distinguish_megatron_from_maxtext(llama: Graph, qwen: Graph) -> None:
    assert by("megatron", llama).total == by("maxtext", llama).total
    config = QWEN3_30B_A3B
    routers = 6 * config.layers * config.width * config.experts
    per_token = [by(rules, qwen).per_token for rules in ("maxtext", "megatron")]
    assert per_token[0] == 27_913_617_408
    assert per_token[1] == 27_913_617_408 - routers


def test_every_term_is_at_its_own_node(llama: Graph) -> None:
    tokens, config = 12 * 2048, LLAMA2_7B
    rows = {row.name: row.ops.total for row in by("palm", llama).by_kind if row.ruled}
    norms = (2 * config.layers + 1) * config.width
    assert rows["elementwise"] == 6 * norms * tokens
    assert rows["product"] == 12 * config.layers * config.width * 2048 * tokens
    lookups = config.vocabulary * config.width
    assert rows["dense"] == 6 * (llama.parameter_count - norms - lookups) * tokens
    all_rows = {row.name: row.ops.total for row in by("palm-all", llama).by_kind if row.ruled}
    assert all_rows == {**rows, "embedding": 6 * lookups * tokens}


def _square(scores: Tensor, value: float = 1.0) -> Tensor:
    return torch.full((scores.shape[-2], scores.shape[-1]), value)


def _distance(scores: Tensor) -> Tensor:
    position = torch.arange(scores.shape[-1])
    return position[:, None] - position


def _written_rows(scores: Tensor) -> Tensor:
    mask = _square(scores, -math.inf).triu(1)
    mask[:8].zero_()
    return scores + mask


def _symmetric_window(scores: Tensor) -> Tensor:
    ones = _square(scores)
    return scores.masked_fill(ones.tril(2) * ones.triu(-2) == 0, -math.inf)


MASKS: dict[str, Callable[[Tensor], Tensor]] = {
    "filled triangle": lambda s: s + torch.empty(s.shape[-2:]).fill_(-math.inf).triu_(1),
    "causal window": lambda s: s.masked_fill((_distance(s) < 0) | (_distance(s) > 4), -math.inf),
    "triangle and padding": lambda s: torch.where(
        (_square(s).tril() == 1) & (s.detach() > 0), s, -math.inf
    ),
    "factor and offset": lambda s: s * _square(s).tril() - 1e9 * (1 - _square(s).tril()),
    "symmetric window": _symmetric_window,
    "distance": lambda s: s.masked_fill(_distance(s).abs() > 8, -math.inf),
    "shifted triangle": lambda s: s.masked_fill(_square(s).tril(2) == 0, -math.inf),
    "bias": lambda s: s + _square(s).tril() + _square(s).triu(1) * 0.5,
    "factor": lambda s: s * _square(s).tril(),
    "prefix": lambda s: s.masked_fill((_distance(s) < 0) & (torch.arange(16) > 8), -math.inf),
    "written in place": _written_rows,
}
"""Attention masks that are not the usual ones."""


class Gpt(nn.Module):
    """One layer with position embeddings, biases, and a head tied to the token embeddings."""

    def __init__(self, mask: str = "is_causal", weights: str = "plain") -> None:
        super().__init__()
        self.mask, self.weights = mask, weights
        self.tokens, self.positions = nn.Embedding(WORDS, WIDTH), nn.Embedding(64, WIDTH)
        self.norm = nn.LayerNorm(WIDTH)
        self.project, self.output = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.head = nn.Linear(WIDTH, WORDS, bias=False)
        self.head.weight = self.tokens.weight
        self.triangle: Tensor
        self.register_buffer("triangle", torch.ones(64, 64).tril())

    def forward(self, ids: Tensor, padding: Tensor | None = None) -> Tensor:
        length = ids.shape[1]
        x = self.tokens(ids) + self.positions(torch.arange(length))
        if self.weights == "cast":
            weight = self.project.weight.to(torch.bfloat16)
            bias = self.project.bias.to(torch.bfloat16)
            projected = functional.linear(self.norm(x).to(torch.bfloat16), weight, bias).float()
        else:
            projected = self.project(self.norm(x))
        heads = projected.view(len(ids), length, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        query, key, value = heads.unbind(0)
        mixed = self.attend(query, key, value, padding).transpose(1, 2).reshape(x.shape)
        y: Tensor = self.head(x + self.output(mixed))
        return y

    def attend(self, query: Tensor, key: Tensor, value: Tensor, padding: Tensor | None) -> Tensor:
        length = query.shape[-2]
        if self.mask == "is_causal":
            return functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        scores = query @ key.transpose(-1, -2) * 0.3
        if self.mask == "tril":
            allowed = torch.ones(length, length).tril() == 1
            scores = scores.masked_fill(~allowed, float("-inf"))
        if self.mask == "triu":
            scores = scores + torch.full((length, length), float("-inf")).triu(1)
        if self.mask == "order":
            position = torch.arange(length)
            scores = torch.where(position[:, None] >= position, scores, float("-inf"))
        if self.mask in MASKS:
            scores = MASKS[self.mask](scores)
        if self.mask == "buffer":
            hidden = self.triangle[:length, :length] == 0
            scores = scores.masked_fill(hidden, float("-inf"))
        if padding is not None:
            scores = scores.masked_fill(padding[:, None, None, :], float("-inf"))
        return functional.dropout(scores.softmax(-1), 0.1) @ value


def gpt(mask: str = "is_causal", weights: str = "plain") -> Graph:
    return on_tokens(lambda: Gpt(mask, weights), LENGTH, BATCH)


def used_parameters() -> int:
    """The parameters of ``Gpt`` as nanoGPT counts them: all but the position embeddings."""
    model = Gpt()
    return sum(p.numel() for p in model.parameters()) - model.positions.weight.numel()


def test_tied_embeddings_count_at_the_head_and_positions_do_not_count() -> None:
    graph = gpt()
    assert by("palm", graph).per_token == 6 * used_parameters() + ATTENTION
    assert by("palm-all", graph).per_token == 6 * graph.parameter_count + ATTENTION


class Long(Gpt):
    """A model of a million tokens."""

    def __init__(self, mask: str) -> None:
        super().__init__(mask)
        self.positions = nn.Embedding(1 << 20, WIDTH)


class WithUnused(Gpt):
    """A model with a parameter that it does not read."""

    def __init__(self) -> None:
        super().__init__()
        self.unused = nn.Parameter(torch.empty(7))


def test_all_parameters_are_all_even_if_nothing_reads_them() -> None:
    graph = on_tokens(WithUnused, LENGTH, BATCH)
    assert by("palm", graph).total == by("palm", gpt()).total
    assert by("palm-all", graph).per_token == 6 * graph.parameter_count + ATTENTION


@pytest.mark.parametrize("mask", ["is_causal", "tril", "triu", "order"])
def test_a_causal_mask_halves_attention(mask: str) -> None:
    graph = gpt(mask)
    assert by("palm", graph).per_token == 6 * used_parameters() + ATTENTION
    assert by("causal", graph).per_token == 6 * used_parameters() + ATTENTION // 2


@pytest.mark.parametrize(
    "mask", ["filled triangle", "causal window", "triangle and padding", "factor and offset"]
)
def test_unusual_causal_masks_halve_attention(mask: str) -> None:
    assert by("causal", gpt(mask)).per_token == 6 * used_parameters() + ATTENTION // 2


@pytest.mark.parametrize(
    "mask", ["symmetric window", "distance", "shifted triangle", "bias", "factor", "prefix"]
)
def test_a_mask_that_does_not_hide_the_future_leaves_attention_whole(mask: str) -> None:
    assert by("causal", gpt(mask)).per_token == 6 * used_parameters() + ATTENTION


def test_a_triangle_that_cannot_be_computed_is_refused() -> None:
    with pytest.raises(UsageError, match="may or may not be causal"):
        by("causal", gpt("written in place"))


@pytest.mark.parametrize("mask", ["causal window", "symmetric window"])
def test_masks_of_long_sequences_are_computed_for_short_ones(mask: str) -> None:
    graph = on_tokens(lambda: Long(mask), 1 << 20, 1)
    halved = by("palm", graph).total != by("causal", graph).total
    assert halved == (mask == "causal window")


def test_attention_without_a_mask_is_whole_except_for_megatron() -> None:
    graph = gpt("none")
    assert by("causal", graph).total == by("palm", graph).total
    assert by("megatron", graph).total.total == by("executed", graph).total.total - (
        BATCH * LENGTH * ATTENTION // 2
    )


def test_a_mask_of_padding_is_not_causal() -> None:
    inputs = [InputSpec((LENGTH,), "int64"), InputSpec((LENGTH,), "bool")]
    graph = capture(lambda: Gpt("none"), inputs, name="model", batch=BATCH)
    assert by("causal", graph).total == by("palm", graph).total


def test_a_mask_whose_contents_are_unknown_is_refused_where_they_matter() -> None:
    graph = gpt("buffer")
    assert by("palm", graph).total == by("palm", gpt()).total
    with pytest.raises(UsageError, match="may or may not be causal") as refused:
        by("causal", graph)
    assert "is_causal=True" in str(refused.value.hint)


def test_weights_that_are_cast_before_their_product_count() -> None:
    assert by("palm", gpt(weights="cast")).total == by("palm", gpt()).total
    assert by("maxtext", gpt(weights="cast")).total == by("maxtext", gpt()).total


SMALL = DecoderConfig(2, 32, 4, 2, 8, 24, 100, experts=8, chosen=2, normalized_heads=True)


def test_a_token_uses_the_experts_that_it_is_routed_to() -> None:
    graph = on_tokens(lambda: Decoder(SMALL), LENGTH, BATCH)
    expert = 3 * SMALL.width * SMALL.hidden
    idle = SMALL.layers * (SMALL.experts - SMALL.chosen) * expert
    lookups = SMALL.vocabulary * SMALL.width
    attention = 12 * SMALL.layers * SMALL.width * LENGTH
    active = graph.parameter_count - lookups - idle
    assert by("palm", graph).per_token == 6 * active + attention
    assert by("palm-all", graph).per_token == 6 * graph.parameter_count + attention


def test_experts_in_one_grouped_product_count_by_its_rows() -> None:
    """A grouped product has a weight of 4 experts, and one row per token."""
    graph = sample_transformer(batch=2)
    values = list(graph.values)
    values[9] = values[9].model_copy(update={"shape": (4, 8, 10)})
    grouped = graph.model_copy(
        update={"values": tuple(values), "parameters": {**graph.parameters, "head.weight": 320}}
    )
    attention = 12 * 8 * 4
    assert by("palm", grouped).per_token == 6 * (64 + 320 // 4) + attention
    assert by("palm-all", grouped).per_token == 6 * (80 + 64 + 320) + attention


class TopWords(nn.Module):
    """A model that returns its most probable words: its head is not a router."""

    def __init__(self) -> None:
        super().__init__()
        self.gpt = Gpt()

    def forward(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        logits = self.gpt(ids)
        return logits, logits.topk(5).values


def test_choosing_words_does_not_make_the_head_a_router() -> None:
    graph = on_tokens(TopWords, LENGTH, BATCH)
    assert by("megatron", graph).total == by("megatron", gpt()).total


class SharedLayer(nn.Module):
    """The same layer twice: its parameters count once, its products twice."""

    def __init__(self) -> None:
        super().__init__()
        self.gpt = Gpt()
        self.mix = nn.Linear(WORDS, WORDS)

    def forward(self, ids: Tensor) -> Tensor:
        y: Tensor = self.mix(self.mix(self.gpt(ids)))
        return y


def test_a_parameter_that_is_used_twice_counts_once() -> None:
    plain, shared = gpt(), on_tokens(SharedLayer, LENGTH, BATCH)
    tokens = BATCH * LENGTH
    extra = {
        rules: (by(rules, shared).total.total - by(rules, plain).total.total) // tokens
        for rules in ("palm", "megatron")
    }
    assert extra == {"palm": 6 * (WORDS + 1) * WORDS, "megatron": 2 * 6 * WORDS * WORDS}


def frozen() -> nn.Module:
    model = Gpt()
    model.project.requires_grad_(False)
    return model


class EncoderDecoder(nn.Module):
    """Attention from one sequence of tokens to another one."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        keys, queries = self.words(source), self.words(target)
        return functional.scaled_dot_product_attention(queries, keys, keys)


def refused_graphs() -> dict[str, tuple[Graph, str]]:
    encoder, sequence = CASES["encoder"]
    lengths = [InputSpec((8,), "int64"), InputSpec((6,), "int64")]
    bag = nn.Sequential(nn.Embedding(WORDS, WIDTH), nn.Linear(WIDTH, WORDS), nn.Softmax(-1))
    return {
        "no tokens": (capture(encoder, [sequence], name="encoder"), "has no tokens"),
        "no attention": (on_tokens(lambda: bag.to("meta"), LENGTH, 1), "has no attention"),
        "frozen": (on_tokens(frozen, LENGTH, 1), "project.bias; the formula assumes that all"),
        "two lengths": (
            capture(EncoderDecoder, lengths, name="two"),
            "has inputs of 6 and 8 tokens",
        ),
    }


@pytest.mark.parametrize("rules", TRANSFORMER, ids=lambda rules: rules.id)
def test_a_model_that_the_formula_does_not_fit_is_refused(rules: Convention) -> None:
    for graph, message in refused_graphs().values():
        with pytest.raises(UsageError, match=message) as refused:
            count(graph, rules)
        assert "executed" in str(refused.value.hint)


def test_tokens_are_known_to_every_convention() -> None:
    counted = by("executed", gpt())
    assert counted.tokens == BATCH * LENGTH
    assert counted.per_token == counted.total.total // (BATCH * LENGTH)
    encoder, sequence = CASES["encoder"]
    assert by("executed", capture(encoder, [sequence], name="encoder")).per_token is None


def test_a_convention_counts_nodes_or_the_whole_graph() -> None:
    with pytest.raises(ValueError, match="either a rule or a formula"):
        Convention(id="mine", version=1, title="mine", source="mine")


@pytest.mark.parametrize("convention", TRANSFORMER, ids=lambda rules: rules.id)
class TestTransformer(ConventionConformance):
    """The conventions for transformers pass the tests that every convention must pass."""

    def sample(self, batch: int = 1) -> Graph:
        return sample_transformer(batch)
