"""More than 200 models: every count equals FlopCounterMode's, or the difference is documented."""

from __future__ import annotations

import pytest

from tests.support.counted_models import MODELS
from tests.support.counted_models.expected import (
    AWAITS_CAPTURE,
    AWAITS_OPERATORS,
    REFUSED,
    TORCH_ONLY,
    TRUTH,
    UNCOUNTED,
)
from tests.support.counted_models.oracle import counted, flop_counter_mode


def _row(name: str) -> object:
    missing = {**AWAITS_OPERATORS, **AWAITS_CAPTURE}
    waits = pytest.mark.xfail(strict=True, reason=missing.get(name, ""))
    return pytest.param(name, marks=[waits] if name in missing else [])


@pytest.mark.parametrize("name", [_row(name) for name in MODELS if name not in REFUSED])
def test_it_counts_what_flop_counter_mode_counts_or_the_documented_truth(name: str) -> None:
    ours = counted(MODELS[name])
    assert ours.error is None
    oracle = flop_counter_mode(MODELS[name])
    if name in TORCH_ONLY:
        assert ours.executed_torch != oracle, "remove its entry in TORCH_ONLY"
    else:
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


def test_the_table_is_long_and_names_are_unique() -> None:
    assert len(MODELS) >= 200


def test_every_documented_name_is_a_model() -> None:
    assert {*TRUTH, *REFUSED, *TORCH_ONLY, *AWAITS_CAPTURE} <= set(MODELS)
