"""Refuses a target below the floor of synthetic text, which no model can reach."""

from __future__ import annotations

import math

from vflops.data.text.entropy import entropy_rate
from vflops.data.text.floor import floor_of_recipe
from vflops.data.text.text_recipe import TextRecipe
from vflops.errors import UsageError

_LUCK = 0.25
"""By how much the floor of a text may exceed the entropy rate of its source, in nats per token."""


def require_reachable(target: float, floor: float) -> None:
    """Raise ``UsageError`` if a target, a probability, is a loss below the floor."""
    if -math.log(target) < floor:
        raise UsageError(
            f"target {target:g} is a loss of {-math.log(target):.4f}, below the floor of this "
            f"text, {floor:.4f}: no model can reach it",
            hint=f"--set target={math.floor(1e3 * math.exp(-floor)) / 1e3:g} or less",
        )


def require_reachable_on(target: float, recipe: TextRecipe, tokens: int) -> None:
    """Raise ``UsageError`` if no model can reach a target on text that is yet to be drawn.

    ``tokens`` are those of validation. They are drawn only if the target is near the entropy rate.
    """
    if tokens and -math.log(target) < entropy_rate(recipe) + _LUCK:
        require_reachable(target, floor_of_recipe(recipe, "val", tokens).loss)
