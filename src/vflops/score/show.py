"""A score as rows of text."""

from __future__ import annotations

from vflops.score.record import ModelScore, RuleCount, Score
from vflops.units import percent, quantity

CEILINGS = ("benchmark", "case", "precision", "median", "spread", "caveat")
MODELS = ("model", "rules", "forward", "training", "at most here")


def ceiling_rows(score: Score) -> list[tuple[str, ...]]:
    """What was measured, a row a ceiling, under the names of ``CEILINGS``."""
    return [
        (
            item.benchmark,
            item.case,
            item.precision or "",
            quantity(item.value, item.unit),
            percent(item.spread),
            item.caveat or "",
        )
        for item in score.ceilings
        if item.value is not None
    ]


def model_rows(score: Score) -> list[tuple[str, ...]]:
    """Operations of one sample, a row a model and rule set, under the names of ``MODELS``."""
    return [
        (
            model.model,
            f"{count.rules}/{count.rules_version}",
            quantity(count.ops_forward, "FLOP"),
            quantity(count.ops_total, "FLOP"),
            _most(model, count),
        )
        for model in score.models
        for count in model.counts
    ]


def _most(model: ModelScore, count: RuleCount) -> str:
    bound = model.bound
    if bound is None or bound.rules != count.rules:
        return ""
    return f"{quantity(bound.samples_per_s, 'samples/s')} in {bound.precision}"
