"""Per-rank memory for weights, gradients and optimizer state."""

from __future__ import annotations

from dataclasses import dataclass

MODEL_STATE = "weights, gradients and optimizer"


@dataclass(frozen=True)
class Footprint:
    """Numbers that a rank keeps of a model; of the rank that has the most of them."""

    parameters: int
    """Parameters, each with a gradient and the optimizer's state."""
    besides: int = 0
    """Weights and gradients of other ranks' parts, at their peak."""
    description: str = MODEL_STATE

    def numbers(self, states: int) -> int:
        """Return the total, if the optimizer keeps ``states`` numbers per parameter."""
        return self.parameters * (2 + states) + self.besides
