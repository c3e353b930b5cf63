"""Bounds of qualities: shares lie between 0 and 1, other qualities have those that are given."""

from __future__ import annotations

import pytest

from vflops.metrics import bounds_fault, capped_factor, default_bounds


@pytest.mark.parametrize(
    ("name", "bounds"),
    [
        ("accuracy", (0.0, 1.0)),
        ("top-1 accuracy", (0.0, 1.0)),
        ("mAP@0.5", (0.0, 1.0)),
        ("error", (0.0, 1.0)),
        ("error rate", (0.0, 1.0)),
        ("mean squared error", None),
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


def test_a_factor_is_capped_at_one() -> None:
    assert [capped_factor(factor) for factor in (0.3, 1.0, 5.5e13)] == [0.3, 1.0, 1.0]
    with pytest.raises(ValueError, match="factor"):
        capped_factor(-1.0)
