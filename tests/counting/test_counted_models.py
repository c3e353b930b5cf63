"""More than 200 models: every count equals FlopCounterMode's, or the difference is documented."""

from __future__ import annotations

import pytest

from tests.support.counted_models import MODELS
from tests.support.counted_models.expected import (
    AWAITS_CAPTURE,
    REFUSED,
    TRUTH,
    UNCOUNTED,
)
from tests.support.counted_models.oracle import counted, flop_counter_mode


def _row(name: str) -> object:
    waits = pytest.mark.xfail(strict=True, reason=AWAITS_CAPTURE.get(name, ""))
    return pytest.param(name, marks=[waits] if name in AWAITS_CAPTURE else [])


@pytest.mark.parametrize("name", [_row(name) for name in MODELS if name not in REFUSED])
def test_it_counts_what_flop_counter_mode_counts_or_the_documented_truth(name: str) -> None:
    ours = counted(MODELS[name])
    assert ours.error is None
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


def test_the_table_is_long_and_names_are_unique() -> None:
    assert len(MODELS) >= 200


def test_every_documented_name_is_a_model() -> None:
    assert {*TRUTH, *REFUSED, *AWAITS_CAPTURE} <= set(MODELS)
