"""Targets that are far below the quality that training reached, and a closer one."""

from __future__ import annotations

from dataclasses import dataclass

from vflops.metrics.quality import default_bounds, finite_quality_factor
from vflops.record.formats.job import Goal

MAX_FACTOR = 10.0
"""The largest quality factor with a target of the user's own."""


@dataclass(frozen=True)
class EasyTarget:
    """A target with which any VFLOPS can be had."""

    factor: float | None
    """The quality factor; None if it is not bounded."""
    closer: str
    """A target near the quality that was reached, as settings accept it."""


def easy_target(goal: Goal, achieved: float) -> EasyTarget | None:
    """Return what makes the target of an open task too easy; None if it is not."""
    if achieved == 0:  # an error of 0 has no quality factor
        return None
    factor = finite_quality_factor(
        achieved=achieved, target=goal.target, exponent=goal.exponent, better=goal.better
    )
    if factor is not None and factor <= MAX_FACTOR:
        return None
    return EasyTarget(factor, _closer(goal, achieved))


def _closer(goal: Goal, achieved: float) -> str:
    """Return a target near ``achieved``: that of a share is below 1."""
    rounded = f"{achieved:.2g}"
    is_share = (goal.bounds or default_bounds(goal.quality)) == (0, 1)
    return "0.99" if is_share and float(rounded) >= 1 else rounded
