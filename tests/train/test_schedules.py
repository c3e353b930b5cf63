"""Learning rates against torch's own schedulers and the values of the published recipes."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.optim.lr_scheduler import (
    ConstantLR,
    CosineAnnealingLR,
    LinearLR,
    LRScheduler,
    MultiStepLR,
    PolynomialLR,
    SequentialLR,
)

from vflops.config import training
from vflops.config.training import TrainSettings
from vflops.errors import UsageError
from vflops.train.schedules import SCHEDULES, learning_rate

NAMES = sorted(SCHEDULES)


def curve(name: str, steps: int, warmup_steps: int, peak: float, **options: Any) -> list[float]:
    return [
        learning_rate(name, step=k, steps=steps, warmup_steps=warmup_steps, peak=peak, **options)
        for k in range(steps)
    ]


def torch_curve(name: str, steps: int, warmup: int, peak: float) -> list[float]:
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=peak)
    rest = steps - warmup
    later: dict[str, LRScheduler] = {
        "constant": ConstantLR(optimizer, factor=1.0),
        "cosine": CosineAnnealingLR(optimizer, T_max=rest),
        "polynomial": PolynomialLR(optimizer, total_iters=rest, power=2.0),
        "step": MultiStepLR(optimizer, [rest // 3, 2 * rest // 3], gamma=0.1),
    }
    for group in optimizer.param_groups:
        group["lr"] = peak  # the other schedulers' constructors changed it
    line = LinearLR(optimizer, start_factor=1 / warmup, total_iters=warmup - 1)
    scheduler = SequentialLR(optimizer, [line, later[name]], milestones=[warmup])
    rates = []
    for _ in range(steps):
        rates.append(float(scheduler.get_last_lr()[0]))
        optimizer.step()
        scheduler.step()
    return rates


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", NAMES)
def test_the_curve_is_that_of_torchs_schedulers(name: str) -> None:
    steps, warmup, peak = 97, 12, 0.4
    rest = steps - warmup
    milestones = (warmup + rest // 3, warmup + 2 * rest // 3) if name == "step" else ()
    ours = curve(name, steps, warmup, peak, milestones_steps=milestones)
    assert ours == pytest.approx(torch_curve(name, steps, warmup, peak), rel=1e-9, abs=1e-12)


def test_the_recipe_of_hpc_ai500_for_a_batch_of_2048() -> None:
    peak = TrainSettings(learning_rate=0.256, batch=2048, linear_scaling=True).peak_rate
    assert peak == 2.048
    steps_an_epoch = 625
    at = {
        epoch: learning_rate(
            "cosine",
            step=epoch * steps_an_epoch,
            steps=90 * steps_an_epoch,
            warmup_steps=8 * steps_an_epoch,
            peak=peak,
        )
        for epoch in (0, 4, 8, 49, 90)
    }
    assert at[0] == pytest.approx(peak / 5000)
    assert at[4] == pytest.approx(peak * 2501 / 5000)
    assert at[8] == peak
    assert at[49] == pytest.approx(peak / 2)  # half of the 82 epochs after the warm-up
    assert at[90] == pytest.approx(0, abs=1e-15)


def test_aiperfs_line_is_a_polynomial_of_power_one() -> None:
    rates = curve("polynomial", 60, 0, 0.1, power=1.0)
    assert rates == pytest.approx([0.1 - epoch * 0.1 / 60 for epoch in range(60)])


def test_he_et_al_divide_by_ten_at_epochs_30_and_60() -> None:
    rates = curve("step", 90, 0, 0.1, milestones_steps=(30, 60))
    assert [rates[k] for k in (0, 29, 30, 59, 60, 89)] == pytest.approx(
        [0.1, 0.1, 0.01, 0.01, 0.001, 0.001]
    )


shapes = st.integers(2, 400).flatmap(lambda n: st.tuples(st.just(n), st.integers(1, n - 1)))


@given(st.sampled_from(NAMES), shapes, st.floats(1e-4, 100))
def test_the_warm_up_rises_to_the_peak_and_the_decay_starts_there(
    name: str, shape: tuple[int, int], peak: float
) -> None:
    steps, warmup = shape
    rates = curve(name, steps, warmup, peak, milestones_steps=(steps,))
    assert rates[:warmup] == sorted(rates[:warmup])
    assert rates[0] > 0
    assert rates[warmup - 1] == peak
    assert rates[warmup] == peak
    assert rates[warmup:] == sorted(rates[warmup:], reverse=True)
    largest_step = max(abs(a - b) for a, b in pairwise(rates))
    assert largest_step <= peak * max(1 / warmup, math.pi / (steps - warmup)) * (1 + 1e-9)


@given(st.floats(0, 0.5), st.floats(0.5, 3))
def test_a_polynomial_ends_at_its_end_value(end: float, power: float) -> None:
    last = learning_rate(
        "polynomial", step=50, steps=50, warmup_steps=5, peak=0.5, end=end, power=power
    )
    assert last == pytest.approx(end)


def test_a_training_that_is_all_warm_up_ends_at_the_peak() -> None:
    assert curve("cosine", 4, 4, 1.0) == [0.25, 0.5, 0.75, 1.0]


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("step", -1),
        ("step", 11),
        ("step", 1.5),
        ("steps", 0),
        ("warmup_steps", 11),
        ("warmup_steps", -1),
        ("peak", 0.0),
        ("peak", math.nan),
        ("milestones_steps", (4, 4)),
        ("milestones_steps", (-1,)),
        ("factor", 1.0),
        ("power", 0.0),
        ("end", 2.0),
        ("end", -0.1),
    ],
)
def test_a_wrong_argument_is_named(argument: str, value: Any) -> None:
    good: dict[str, Any] = {"step": 5, "steps": 10, "warmup_steps": 2, "peak": 1.0}
    with pytest.raises(ValueError, match=f"^{argument} is "):
        learning_rate("cosine", **{**good, argument: value})


def test_an_unknown_schedule_gets_a_suggestion() -> None:
    with pytest.raises(UsageError) as error:
        learning_rate("cosin", step=0, steps=1, warmup_steps=0, peak=1.0)
    assert error.value.hint == "did you mean cosine?"


def test_settings_and_schedules_use_the_same_names() -> None:
    assert set(training.Schedule.__args__) == set(SCHEDULES)  # type: ignore[attr-defined]
