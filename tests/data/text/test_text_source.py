"""The source of synthetic text agrees with a second implementation of its description."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.text_oracle import TextOracle
from vflops.data.text.entropy import entropy_rate, expected_nats
from vflops.data.text.grammar import Choice
from vflops.data.text.text_drawing import draw_block
from vflops.data.text.text_recipe import BLOCK_TOKENS, TextRecipe
from vflops.errors import UsageError

QUANTUM = 2.0**-32
RECIPES = [
    TextRecipe(vocabulary=48, seed=3),
    TextRecipe(vocabulary=64, segments=4, span=6),
    TextRecipe(vocabulary=300, span=4),
    TextRecipe(vocabulary=5000, seed=2**63 - 1),
]


@given(st.lists(st.integers(1, 10**6), min_size=1, max_size=50))
def test_choices_have_exact_probabilities_near_the_weights(weights: list[int]) -> None:
    choice = Choice.of(weights)
    assert choice.ends[-1] == 1 << 32
    assert math.fsum(choice.probabilities) == 1.0  # multiples of 2⁻³² add up without rounding
    expected = np.array(weights) / sum(weights)
    # Each is rounded down or up to one multiple; the most likely takes what is left.
    assert np.abs(np.array(choice.probabilities) - expected).max() <= len(weights) * QUANTUM
    for outcome, end in enumerate(choice.ends):
        assert choice.outcome(end - 1) == outcome


@pytest.mark.parametrize("recipe", RECIPES, ids=str)
def test_every_token_has_the_stated_probability(recipe: TextRecipe) -> None:
    """The information of each token is that of an oracle that sees only the text before it."""
    oracle = TextOracle(recipe)
    block = draw_block(recipe, "train", 5)
    count = 1500
    start = 0
    for position in range(1, count):
        if block.tokens[position - 1] == 0:
            start = position - 1
        probabilities = oracle.next_token(block.tokens[start:position].tolist())
        assert probabilities.sum() == pytest.approx(1.0, abs=1e-12)
        probability = probabilities[block.tokens[position]]
        # Two nested choices, each within a few multiples of 2⁻³² of the ideal one.
        assert math.exp(-block.nats[position]) == pytest.approx(probability, rel=1e-4), position
    assert block.nats[0] == 0.0


def test_tokens_come_as_often_as_their_probability_says() -> None:
    """Information and entropy differ by a martingale, whose sum is within 5 standard deviations."""
    recipe = TextRecipe(vocabulary=64, seed=11)
    oracle = TextOracle(recipe)
    excess, variance = 0.0, 0.0
    block = draw_block(recipe, "val", 0)
    start = 0
    for position in range(1, 6000):
        if block.tokens[position - 1] == 0:
            start = position - 1
        p = oracle.next_token(block.tokens[start:position].tolist())
        p = p[p > 0]
        entropy = -float(np.sum(p * np.log(p)))
        excess += float(block.nats[position]) - entropy
        variance += float(np.sum(p * np.log(p) ** 2)) - entropy**2
    assert abs(excess) < 5 * math.sqrt(variance)


def test_entropy_of_short_texts_equals_enumeration() -> None:
    """All texts of the first tokens, with their probabilities from the second implementation."""
    recipe = TextRecipe(vocabulary=48, segments=2)
    oracle = TextOracle(recipe)

    def expected(document: list[int], probability: float, left: int) -> float:
        p = oracle.next_token(document)
        reached = np.flatnonzero(p)
        nats = -probability * float(np.sum(p[reached] * np.log(p[reached])))
        if left == 1:
            return nats
        return nats + math.fsum(
            expected([0] if token == 0 else [*document, token], probability * p[token], left - 1)
            for token in reached.tolist()
        )

    for tokens in (2, 3, 4):
        enumerated = expected([0], 1.0, tokens - 1)
        assert expected_nats(recipe, tokens) == pytest.approx(enumerated, rel=1e-7)


@pytest.mark.parametrize("recipe", RECIPES[:2], ids=str)
def test_entropy_rate_is_that_of_a_whole_block(recipe: TextRecipe) -> None:
    stepped = expected_nats(recipe, BLOCK_TOKENS) / BLOCK_TOKENS
    assert entropy_rate(recipe) == pytest.approx(stepped, rel=1e-10)


def test_drawn_text_has_the_entropy_rate() -> None:
    recipe = TextRecipe(vocabulary=64, seed=5)
    means = [float(draw_block(recipe, "train", block).nats.mean()) for block in range(24)]
    error = np.std(means, ddof=1) / math.sqrt(len(means))
    assert abs(np.mean(means) - entropy_rate(recipe)) < 5 * error
    assert error < 0.01 * entropy_rate(recipe)


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 2**63 - 1), st.integers(0, 10**6), st.sampled_from(["train", "val"]))
def test_a_block_is_a_function_of_seed_split_and_number(seed: int, block: int, split: str) -> None:
    recipe = TextRecipe(vocabulary=64, seed=seed)
    one, same = draw_block(recipe, split, block), draw_block(recipe, split, block)
    assert np.array_equal(one.tokens, same.tokens)
    assert len(one.tokens) == len(one.nats) == BLOCK_TOKENS
    assert one.tokens.min() == 0 and one.tokens.max() < recipe.vocabulary
    assert one.starts[0] == 0 and np.array_equal(np.flatnonzero(one.tokens == 0), one.starts)
    other = "val" if split == "train" else "train"
    for changed in (draw_block(recipe, other, block), draw_block(recipe, split, block + 1)):
        assert not np.array_equal(one.tokens, changed.tokens)


def test_tokens_are_the_same_on_every_machine() -> None:
    """The digest guards the generator: raise VERSION if it has to change."""
    import hashlib

    tokens = draw_block(TextRecipe(vocabulary=256, seed=1), "train", 0).tokens
    assert hashlib.sha256(tokens.astype("<i8").tobytes()).hexdigest().startswith("3f056d7b2f1f9cfd")


@pytest.mark.parametrize(
    ("field", "value"), [("vocabulary", 47), ("vocabulary", 2**21), ("segments", 1), ("span", 3)]
)
def test_impossible_recipes_are_refused(field: str, value: int) -> None:
    with pytest.raises(UsageError, match=f"{field} is {value}"):
        TextRecipe(**{field: value})
