"""The loss scale changes as that of ``torch.amp.GradScaler``."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from vflops.train.backends.loss_scale import first_state, next_state, plain_state
from vflops.train.precision import LossScaler


@pytest.mark.parametrize(("scale", "interval"), [(2.0**16, 2), (2.0**16, 3), (2.0**127, 1)])
def test_every_order_of_overflows_gives_the_scale_of_torch(scale: float, interval: int) -> None:
    for finite in itertools.product((True, False), repeat=6):
        weight = torch.zeros(1, requires_grad=True)
        optimizer = torch.optim.SGD([weight], lr=0.1)
        scaler = LossScaler("cpu", "dynamic")
        start = scaler.state_dict() | {"scale": scale, "growth_interval": interval}
        scaler.load_state_dict(start)
        state = {name: np.asarray(value, np.float32) for name, value in start.items()}
        for is_finite in finite:
            weight.grad = torch.tensor([1.0 if is_finite else float("inf")])
            scaler.scale(torch.zeros(1))  # it begins a step
            scaler.step(optimizer)
            scaler.update()
            with np.errstate(over="ignore"):
                state = next_state(state, np.asarray(is_finite), np.where)
            assert plain_state(state) == scaler.state_dict(), finite


def test_a_new_scale_is_that_of_torch_and_only_fp16_has_one() -> None:
    assert first_state("mixed-fp16") == LossScaler("cpu", "dynamic").state_dict()
    assert (
        first_state("mixed-bf16") == first_state("fp32") == LossScaler("cpu", "none").state_dict()
    )
