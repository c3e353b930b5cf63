"""More than 200 models: every count equals FlopCounterMode's, or the difference is documented."""

from __future__ import annotations

import pytest

from tests.support.counted_models import FAMILIES, MODELS
from tests.support.counted_models.expected import (
    REFUSED,
    TRUTH,
    UNCOUNTED,
)
from tests.support.counted_models.oracle import counted, flop_counter_mode
from tests.support.paths import DOCS


@pytest.mark.parametrize("name", [name for name in MODELS if name not in REFUSED])
def test_it_counts_what_flop_counter_mode_counts_or_the_documented_truth(name: str) -> None:
    ours = counted(MODELS[name])
    assert ours.error is None
    assert ours == counted(MODELS[name], as_instance=True)
    oracle = flop_counter_mode(MODELS[name])
    assert ours.executed_torch == oracle
    if name in TRUTH:
        assert ours.executed == (TRUTH[name].forward, TRUTH[name].backward)
        assert ours.executed != oracle, "remove its entry in TRUTH"
    else:
        assert ours.executed == oracle
    assert ours.uncounted <= set(UNCOUNTED)


@pytest.mark.parametrize("name", REFUSED)
def test_it_is_refused_with_a_hint(name: str) -> None:
    error = counted(MODELS[name]).error
    assert error is not None
    assert REFUSED[name] in error.message
    assert error.hint


def test_the_documentation_has_the_figures_of_the_table() -> None:
    text = " ".join((DOCS / "explanation" / "counting.md").read_text().split())
    assert len(MODELS) == sum(map(len, FAMILIES.values())), "two models have the same name"
    equal = len(MODELS) - len(TRUTH) - len(REFUSED)
    assert f"compare {len(MODELS)} small models" in text
    assert f"has the same for {equal}; for {len(TRUTH)}, FlopCounterMode" in text
    assert f"{len(REFUSED)} are refused" in text


def test_every_documented_name_is_a_model() -> None:
    assert {*TRUTH, *REFUSED} <= set(MODELS)
