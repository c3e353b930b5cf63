"""The loss of a model whose quality follows from it: perplexity, bits per byte and the floor."""

from __future__ import annotations

import math

from vflops.record.formats.job import DataFacts, Goal
from vflops.results.score.score_file import LossScore

FLOOR = "floor"
"""The fact about the data that is the lowest loss to be expected of any model."""
BYTES_PER_TOKEN = "bytes per token"


def loss_of(quality: float) -> float | None:
    """Return the loss of which ``quality`` is exp(−loss); None if it is infinite."""
    return -math.log(quality) if quality > 0 else None


def loss_score(goal: Goal, data: DataFacts, achieved: float | None) -> LossScore | None:
    """Return the loss behind a quality; None if the quality does not follow from it."""
    target = loss_of(goal.target) if goal.of_loss else None
    if target is None or achieved is None:
        return None
    value = loss_of(achieved)
    size = _fact(data, BYTES_PER_TOKEN)
    return LossScore(
        value=value,
        target=target,
        floor=_fact(data, FLOOR),
        perplexity=1 / achieved if achieved > 0 else None,
        bytes_per_token=size,
        bits_per_byte=None if value is None or not size else value / math.log(2) / size,
        unit=data.unit.name.removesuffix("s") if data.unit else "sample",
    )


def _fact(data: DataFacts, name: str) -> float | None:
    value = data.facts.get(name)
    return None if value is None or isinstance(value, str) else float(value)
