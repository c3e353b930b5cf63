"""What the memory of a rank is reckoned from: its part of a model, before a batch comes to it."""

from __future__ import annotations

from dataclasses import dataclass

HELD = "weights, gradients and optimizer"


@dataclass(frozen=True)
class Footprint:
    """What a rank keeps of a model: in numbers, of the rank that has the most of them."""

    parameters: int
    """With a gradient and the optimizer's state each."""
    besides: int = 0
    """Weights and gradients of other ranks' parts, the most that are there at once."""
    words: str = HELD

    def numbers(self, states: int) -> int:
        """All of them, where the optimizer keeps ``states`` for each parameter."""
        return self.parameters * (2 + states) + self.besides
