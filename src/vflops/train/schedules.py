"""The learning rate as a pure function of the step, so that checkpoints need no scheduler state."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from vflops.errors import unknown_name
from vflops.metrics.arguments import (
    require_between,
    require_count,
    require_non_negative,
    require_positive,
)

SCHEDULES: dict[str, str] = {
    "constant": "the peak, after the warm-up",
    "cosine": "half a cosine from the peak to 0 (HPC AI500's recipe)",
    "polynomial": "(1 − progress)^power from the peak to the end value; power 1 is a line",
    "step": "× factor at every milestone (He et al. 2016)",
}


@dataclass(frozen=True)
class _Decay:
    """The inputs of a schedule after the warm-up."""

    progress: float
    """0 at the end of the warm-up, 1 at the end of training."""
    peak: float
    end: float
    power: float
    factor: float
    milestones_passed: int


_FORMULAS: dict[str, Callable[[_Decay], float]] = {
    "constant": lambda d: d.peak,
    "cosine": lambda d: d.peak * 0.5 * (1.0 + math.cos(math.pi * d.progress)),
    "polynomial": lambda d: d.end + (d.peak - d.end) * (1.0 - d.progress) ** d.power,
    "step": lambda d: d.peak * d.factor**d.milestones_passed,
}


def learning_rate(
    name: str,
    *,
    step: int,
    steps: int,
    warmup_steps: int,
    peak: float,
    milestones_steps: Sequence[int] = (),
    factor: float = 0.1,
    power: float = 2.0,
    end: float = 0.0,
) -> float:
    """Return the learning rate of update ``step``, counted from 0.

    The warm-up is linear from peak / warmup_steps in its first step to the peak in its last; the
    decay then starts from the peak. Milestones are counted from the start of training. ``factor``
    applies to the schedule ``step``, ``power`` and ``end`` to ``polynomial``.
    """
    if name not in _FORMULAS:
        raise unknown_name("schedule", name, _FORMULAS)
    _check_steps(step, steps, warmup_steps)
    require_positive("peak", peak)
    _check_shape(peak, milestones_steps, factor, power, end)
    if step < warmup_steps:
        return peak * ((step + 1) / warmup_steps)
    decay_steps = steps - warmup_steps
    decay = _Decay(
        # If all steps are warm-up, the step after the last one is at the peak.
        progress=(step - warmup_steps) / decay_steps if decay_steps else 0.0,
        peak=peak,
        end=end,
        power=power,
        factor=factor,
        milestones_passed=sum(step >= milestone for milestone in milestones_steps),
    )
    return _FORMULAS[name](decay)


def _check_steps(step: int, steps: int, warmup_steps: int) -> None:
    require_count("steps", steps, at_least=1)
    require_count("step", step)
    require_count("warmup_steps", warmup_steps)
    if step > steps:
        raise ValueError(f"step is {step}: expected at most {steps}, the number of steps")
    if warmup_steps > steps:
        raise ValueError(
            f"warmup_steps is {warmup_steps}: expected at most {steps}, the number of steps"
        )


def _check_shape(
    peak: float, milestones_steps: Sequence[int], factor: float, power: float, end: float
) -> None:
    for milestone in milestones_steps:
        require_count("milestones_steps", milestone)
    if any(a >= b for a, b in pairwise(milestones_steps)):
        raise ValueError(f"milestones_steps is {list(milestones_steps)}: expected increasing steps")
    require_between("factor", factor, 0.0, 1.0)
    require_positive("power", power)
    require_non_negative("end", end)
    if end > peak:
        raise ValueError(f"end is {end!r}: expected at most peak, {peak!r}")
