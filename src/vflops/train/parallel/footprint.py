"""Per-rank memory for weights, gradients and optimizer state."""

from __future__ import annotations

from dataclasses import dataclass

MODEL_STATE = "weights, gradients and optimizer"


@dataclass(frozen=True)
class Footprint:
    """The numbers that a rank keeps in memory for a model, on the rank that keeps the most."""

    parameters: int
    """Number of parameters, each of which has a gradient and optimizer state."""
    gathered: int = 0
    """Peak number of weights and gradients gathered from other ranks."""
    description: str = MODEL_STATE
    built: int = 0
    """Number of parameters of the whole model, if each rank must build all of it."""

    def numbers(self, states: int) -> int:
        """Return the peak if the optimizer keeps ``states`` numbers per parameter."""
        return max(self.parameters * (2 + states) + self.gathered, self.built)
