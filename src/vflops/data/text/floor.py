"""The floor of the loss on synthetic text: what the source itself would get on the same tokens.

The source knows the probability p of each token given all that came before. Let q be what any model
gives the token, which it computes from earlier tokens only. Then E[q/p] ≤ 1 for every token, so the
product of q/p over the tokens is a supermartingale that starts at 1, and by Ville's inequality

    P(loss of the model < loss of the source − log(1/δ) / tokens) < δ

for the mean losses over the same tokens, whatever the model and the number of tokens. A model that
is below the floor by more than this margin has seen the text, or its loss was not measured.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, fields

import numpy as np

from vflops.data.packed_index import REPAIR
from vflops.data.text.packed_text import TokenSplit
from vflops.data.text.text_drawing import TextBlock, draw_block
from vflops.data.text.text_recipe import BLOCK_TOKENS, VERSION, TextRecipe
from vflops.data.text.token_windows import TokenWindows
from vflops.errors import FolderError

_BATCHES = 64
"""Tokens depend on their neighbours, so the standard error is that of the means of this many parts
of the text."""


@dataclass(frozen=True)
class Floor:
    """The loss of the source on some tokens, in nats per token."""

    loss: float
    standard_error: float
    """Of ``loss`` as an estimate of the entropy rate: how much it varies between texts."""
    tokens: int

    def margin(self, probability: float = 1e-9) -> float:
        """Return by how much a model is below ``loss`` with at most this probability."""
        return math.log(1.0 / probability) / self.tokens


def recipe_of_text(recipe: dict[str, object]) -> TextRecipe:
    """Return the recipe of an index; raise ``FolderError`` if this version cannot draw it."""
    known = {field.name for field in fields(TextRecipe)}
    values = {name: value for name, value in recipe.items() if name in known}
    version = (recipe.get("generator"), recipe.get("version"))
    whole = all(isinstance(value, int) for value in values.values()) and len(values) == len(known)
    if version != ("vflops.text", VERSION) or not whole:
        raise FolderError(
            f"the recipe {recipe} is not one of synthetic text that this version draws",
            hint="create the text again: vflops data synth language-model DIR",
        )
    return TextRecipe(**values)  # type: ignore[arg-type]  # checked above


def floor_of(windows: TokenWindows) -> Floor | None:
    """Return the floor of all tokens that ``windows`` predict; None for text that is not synthetic.

    The text is drawn again; raise ``FolderError`` if it differs from what is stored.
    """
    split = windows.split
    if not split.index.synthetic or split.index.recipe is None:
        return None
    recipe = recipe_of_text(split.index.recipe)
    return _floor(_compared(split, _blocks(recipe, split.name, windows.predicted + 1)))


def floor_of_recipe(recipe: TextRecipe, split: str, predicted: int) -> Floor:
    """Return the floor of the tokens 1 to ``predicted`` of a split, without reading any file."""
    return _floor(_blocks(recipe, split, predicted + 1))


def _blocks(recipe: TextRecipe, split: str, end: int) -> Iterator[TextBlock]:
    """Draw the blocks that hold the tokens 0 to ``end``; the last is cut off there."""
    for first in range(0, end, BLOCK_TOKENS):
        block = draw_block(recipe, split, first // BLOCK_TOKENS)
        kept = slice(end - first)
        yield TextBlock(block.tokens[kept], block.nats[kept], block.starts)


def _compared(split: TokenSplit, blocks: Iterator[TextBlock]) -> Iterator[TextBlock]:
    for number, block in enumerate(blocks):
        stored = np.empty_like(block.tokens)
        split.copy(number * BLOCK_TOKENS, stored)
        if not np.array_equal(stored, block.tokens):
            raise FolderError(
                f"block {number} of {split.name} in {split.path} is not what its recipe draws",
                hint=REPAIR,
            )
        yield block


def _floor(blocks: Iterator[TextBlock]) -> Floor:
    nats = np.concatenate([block.nats for block in blocks])[1:]  # nothing predicts the first token
    loss = math.fsum(nats) / len(nats)
    batch = max(len(nats) // _BATCHES, 1)
    batches = nats[: len(nats) // batch * batch].reshape(-1, batch).mean(axis=1)
    spread = float(np.sum((batches - loss) ** 2)) / max(len(batches) - 1, 1)
    return Floor(loss, math.sqrt(spread / len(batches)), len(nats))
