"""Dynamic loss scaling of gradients in fp16, step by step as ``torch.amp.GradScaler`` does it.

A backend keeps the numbers on its device, by the names that they have in GradScaler's
``state_dict``: checkpoints of all frameworks have the same ones.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

ScaleState = dict[str, Any]
"""The numbers of a scaler by name; empty without loss scaling."""

FIRST_STATE: dict[str, float | int] = {
    "scale": 2.0**16,
    "growth_factor": 2.0,
    "backoff_factor": 0.5,
    "growth_interval": 2000,
    "_growth_tracker": 0,
}
"""The state of a new scaler of torch."""
SCALED_PRECISIONS = ("mixed-fp16",)
"""The precisions whose gradients need scaling."""


def first_state(precision: str) -> ScaleState:
    """Return the state of a new scaler; empty if the precision needs none."""
    return dict(FIRST_STATE) if precision in SCALED_PRECISIONS else {}


def plain_state(state: ScaleState) -> ScaleState:
    """Return a state of arrays or tensors as Python's numbers."""
    return {name: type(first)(state[name]) for name, first in FIRST_STATE.items() if state}


def next_state(state: ScaleState, finite: Any, where: Callable[[Any, Any, Any], Any]) -> ScaleState:
    """Return the state after a step, as arrays of a framework whose ``where`` is given.

    A gradient that is not finite halves the scale; ``growth_interval`` steps without one double it.
    """
    scale, steps = state["scale"], state["_growth_tracker"] + 1
    grown = scale * state["growth_factor"]
    is_due = steps == state["growth_interval"]
    is_due_and_finite = is_due & (grown < float("inf"))
    after_good = where(is_due_and_finite, grown, scale)
    return {
        **state,
        "scale": where(finite, after_good, scale * state["backoff_factor"]),
        "_growth_tracker": where(finite & ~is_due, steps, 0 * steps),
    }
