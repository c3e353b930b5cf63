"""Whether compiling pays, and which rank decides."""

from __future__ import annotations

import math
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.support.automl_parts import candidate, settings, turn
from vflops.train.phase_clock import Clock
from vflops.train.precision import Precision
from vflops.workloads.automl.candidate import Deadline
from vflops.workloads.automl.compile_policy import CompileCosts, CompilePolicy

LAYERS = 53
SHORT, MIDDLE, LONG = 10**15, 10**16, 10**17
"""Operations of trainings of 10 s, 100 s and 1,000 s that are not compiled."""


def test_short_trainings_are_not_compiled_and_long_ones_are() -> None:
    costs = CompileCosts()
    assert not costs.compiling_pays(SHORT, LAYERS)
    assert costs.compiling_pays(LONG, LAYERS)


def test_what_is_compiled_already_pays_sooner() -> None:
    costs = CompileCosts()
    assert not costs.compiling_pays(MIDDLE, LAYERS)
    assert costs.compiling_pays(MIDDLE, LAYERS, ahead_s=math.inf)
    assert not costs.compiling_pays(MIDDLE, LAYERS, ahead_s=1.0)
    assert not costs.compiling_pays(SHORT, LAYERS, ahead_s=math.inf)


def test_a_training_that_the_time_cuts_off_has_less_to_gain() -> None:
    costs = CompileCosts()
    assert costs.compiling_pays(LONG, LAYERS, math.inf, left_s=60)
    assert not costs.compiling_pays(LONG, LAYERS, math.inf, left_s=10)


def test_what_was_measured_counts() -> None:
    slow = CompileCosts()
    slow.update(SHORT, training_s=1000.0, compiled=False)
    assert slow.uncompiled_s(SHORT) == pytest.approx(1000.0)
    assert slow.compiling_pays(SHORT, LAYERS)
    slow.update(SHORT, training_s=990.0, compiled=True)  # it gains nearly nothing here
    assert not slow.compiling_pays(SHORT, LAYERS)
    hasty = CompileCosts()
    hasty.update(SHORT, training_s=0.5, compiled=False)
    assert hasty == CompileCosts()


def policy(
    device: str = "cuda", *, others: int = 0, leads: bool = True, **train: Any
) -> CompilePolicy:
    changed = settings().train.model_copy(update={"ranks": 2, **train})
    record = SimpleNamespace(data=SimpleNamespace(train=10**12))
    context = SimpleNamespace(record=record, attempt=Path(), clock=Clock())
    plan = SimpleNamespace(
        ranks=2, leads=leads, has_whole_model=True, agree=lambda wish: max(wish, others)
    )
    deadline = Deadline(SimpleNamespace(signal=None), time.monotonic() + 1e6)
    precision = Precision.named("fp32", torch.device("cpu"))
    return CompilePolicy(context, changed, plan, precision, torch.device(device), deadline)  # type: ignore[arg-type]


def test_a_long_candidate_is_compiled_on_an_accelerator() -> None:
    assert policy().choose(candidate(turn(0, 0))) == "on"


def test_exact_searches_are_never_compiled() -> None:
    assert policy(deterministic=True).choose(candidate(turn(0, 0))) == "record"


def test_the_first_rank_decides_for_all() -> None:
    assert policy(leads=False).choose(candidate(turn(0, 0))) == "record"
    assert policy(leads=False, others=1).choose(candidate(turn(0, 0))) == "on"


@pytest.mark.parametrize("asked", ["on", "off", "record"])
def test_what_the_user_asks_for_is_done(asked: str) -> None:
    assert policy(compile=asked).choose(candidate(turn(0, 0))) == asked


def test_nothing_is_chosen_on_a_cpu() -> None:
    assert policy("cpu").choose(candidate(turn(0, 0))) == "auto"
