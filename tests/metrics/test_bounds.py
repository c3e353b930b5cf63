"""Bounds of qualities: shares lie between 0 and 1, other qualities have those that are given."""

from __future__ import annotations

import math

import pytest

from vflops.metrics import bounds_fault, capped_factor, default_bounds
from vflops.metrics.quality import Better, finite_quality_factor


@pytest.mark.parametrize(
    ("name", "bounds"),
    [
        ("accuracy", (0.0, 1.0)),
        ("top-1 accuracy", (0.0, 1.0)),
        ("mAP@0.5", (0.0, 1.0)),
        ("acc", (0.0, 1.0)),
        ("val_acc", (0.0, 1.0)),
        ("F1", (0.0, 1.0)),
        ("macro f1-score", (0.0, 1.0)),
        ("F0.5", (0.0, 1.0)),
        ("precision@1", (0.0, 1.0)),
        ("Recall", (0.0, 1.0)),
        ("mIoU", (0.0, 1.0)),
        ("Dice", (0.0, 1.0)),
        ("ROC AUC", (0.0, 1.0)),
        ("AP50", (0.0, 1.0)),
        ("top1", (0.0, 1.0)),
        ("top-3 error", (0.0, 1.0)),
        ("Validation error", (0.0, 1.0)),
        ("error", (0.0, 1.0)),
        ("error rate", (0.0, 1.0)),
        ("mean squared error", None),
        ("word error rate", None),
        ("mapping", None),
        ("stopping time", None),
        ("perplexity", None),
        ("quality", None),
    ],
)
def test_the_name_of_a_share_says_its_bounds(name: str, bounds: tuple[float, float] | None) -> None:
    assert default_bounds(name) == bounds


def test_a_value_outside_of_its_bounds_is_named_with_them() -> None:
    fault = bounds_fault("accuracy", 1.7, (0.0, 1.0))
    assert fault == "the accuracy is 1.7, but it lies between 0 and 1"
    assert bounds_fault("accuracy", -0.1, (0.0, 1.0)) is not None


def test_the_bounds_themselves_are_allowed() -> None:
    assert bounds_fault("accuracy", 0.0, (0.0, 1.0)) is None
    assert bounds_fault("accuracy", 1.0, (0.0, 1.0)) is None
    assert bounds_fault("perplexity", 1e9, None) is None


def test_an_open_end_is_not_named() -> None:
    fault = bounds_fault("perplexity", 0.5, (1.0, math.inf))
    assert fault == "the perplexity is 0.5, but it is at least 1"
    assert bounds_fault("score", 2.0, (-math.inf, 1.0)) == "the score is 2, but it is at most 1"
    assert bounds_fault("perplexity", 1e9, (1.0, math.inf)) is None


@pytest.mark.parametrize(
    ("achieved", "better", "factor"),
    [(0.0, "lower", None), (1e-300, "lower", None), (0.1, "lower", 4.0), (0.0, "higher", 0.0)],
)
def test_a_factor_that_is_not_finite_is_none(
    achieved: float, better: Better, factor: float | None
) -> None:
    found = finite_quality_factor(achieved=achieved, target=0.2, exponent=2, better=better)
    assert found == factor
    assert capped_factor(found) == (0.0 if factor == 0 else 1.0)


def test_a_factor_is_capped_at_one() -> None:
    assert [capped_factor(factor) for factor in (0.3, 1.0, 5.5e13)] == [0.3, 1.0, 1.0]
    with pytest.raises(ValueError, match="factor"):
        capped_factor(-1.0)
