"""LARS against the paper's algorithm 1, written out number by number."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from vflops.train.lars import LARS

STEPS = 4


def published(
    w: list[float],
    gradients: list[list[float]],
    rates: list[float],
    *,
    momentum: float,
    decay: float,
    trust: float,
    adapt: bool = True,
) -> list[float]:
    """You et al. 2017, algorithm 1, for one layer."""
    v = [0.0] * len(w)
    for g, rate in zip(gradients, rates, strict=True):
        w_norm = math.sqrt(math.fsum(x * x for x in w))
        g_norm = math.sqrt(math.fsum(x * x for x in g))
        local = 1.0
        if adapt and w_norm > 0 and g_norm > 0:
            local = trust * w_norm / (g_norm + decay * w_norm)
        v = [
            momentum * vi + rate * local * (gi + decay * wi)
            for vi, gi, wi in zip(v, g, w, strict=True)
        ]
        w = [wi - vi for wi, vi in zip(w, v, strict=True)]
    return w


def numbers(seed: int, *shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def train(
    optimizer: torch.optim.Optimizer, parameters: list[Tensor], gradients: list[list[Tensor]]
) -> None:
    for of_step in gradients:
        for parameter, gradient in zip(parameters, of_step, strict=True):
            parameter.grad = gradient.clone()
        optimizer.step()


shapes = st.lists(st.integers(1, 5), min_size=1, max_size=4).map(tuple)


@settings(deadline=None, max_examples=30)
@given(
    st.lists(shapes, min_size=1, max_size=4),
    st.floats(0, 0.99),
    st.floats(0, 0.1),
    st.floats(1e-4, 1),
    st.booleans(),
    st.integers(0, 2**31),
)
def test_several_layers_and_steps_follow_the_paper(
    layers: list[tuple[int, ...]],
    momentum: float,
    decay: float,
    trust: float,
    adapt: bool,
    seed: int,
) -> None:
    start = [numbers(seed + i, *shape) for i, shape in enumerate(layers)]
    gradients = [
        [numbers(seed + 100 * (k + 1) + i, *shape) for i, shape in enumerate(layers)]
        for k in range(STEPS)
    ]
    rates = [0.1, 0.2, 0.05, 0.4]
    parameters = [w.clone().requires_grad_() for w in start]
    optimizer = LARS(
        [{"params": parameters, "adapt": adapt}],
        0.0,
        momentum=momentum,
        weight_decay=decay,
        trust_coefficient=trust,
    )
    for rate, of_step in zip(rates, gradients, strict=True):
        optimizer.param_groups[0]["lr"] = rate
        train(optimizer, parameters, [of_step])
    for i, parameter in enumerate(parameters):
        expected = published(
            start[i].flatten().tolist(),
            [of_step[i].flatten().tolist() for of_step in gradients],
            rates,
            momentum=momentum,
            decay=decay,
            trust=trust,
            adapt=adapt,
        )
        assert parameter.flatten().tolist() == pytest.approx(expected, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("zero", ["weights", "gradients"])
def test_a_norm_of_zero_means_a_ratio_of_one(zero: str) -> None:
    w = torch.zeros(3) if zero == "weights" else torch.tensor([1.0, 2.0, 3.0])
    g = torch.zeros(3) if zero == "gradients" else torch.tensor([1.0, 2.0, 3.0])
    parameter = w.clone().requires_grad_()
    optimizer = LARS([parameter], 0.5, weight_decay=0.1)
    train(optimizer, [parameter], [[g]])
    assert torch.allclose(parameter.detach(), w - 0.5 * (g + 0.1 * w))


def test_without_adaptation_it_is_torchs_sgd() -> None:
    start, gradients = numbers(1, 4, 3), [[numbers(k, 4, 3)] for k in range(2, 6)]
    ours, theirs = start.clone().requires_grad_(), start.clone().requires_grad_()
    options: dict[str, Any] = {"momentum": 0.9, "weight_decay": 0.01}
    train(LARS([{"params": [ours], "adapt": False}], 0.1, **options), [ours], gradients)
    train(torch.optim.SGD([theirs], 0.1, **options), [theirs], gradients)
    assert torch.allclose(ours, theirs, rtol=1e-12)


def test_all_layers_at_once_and_one_by_one_are_bit_identical() -> None:
    start = [numbers(i, 3, i + 1).float() for i in range(5)]
    gradients = [[numbers(10 * k + i, 3, i + 1).float() for i in range(5)] for k in range(3)]
    together = [w.clone().requires_grad_() for w in start]
    train(LARS(together, 0.1, weight_decay=1e-3), together, gradients)
    for i, w in enumerate(start):
        alone = w.clone().requires_grad_()
        train(LARS([alone], 0.1, weight_decay=1e-3), [alone], [[g[i]] for g in gradients])
        assert torch.equal(alone, together[i])


def test_halves_are_updated_with_norms_that_halves_could_not_hold() -> None:
    start = torch.full((4096,), 2000.0)
    parameter = start.half().requires_grad_()
    optimizer = LARS([parameter], 1.0, momentum=0.0, trust_coefficient=0.5)
    train(optimizer, [parameter], [[torch.ones(4096).half()]])
    assert torch.allclose(parameter.float(), torch.full((4096,), 1000.0))


def test_a_parameter_without_a_gradient_stays() -> None:
    used, unused = torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)
    optimizer = LARS([used, unused], 0.1, weight_decay=0.1)
    used.grad = torch.ones(2)
    optimizer.step()
    assert torch.equal(unused, torch.ones(2)) and not torch.equal(used, torch.ones(2))


def test_a_resumed_state_continues_bit_for_bit() -> None:
    gradients = [[numbers(k, 3, 3).float()] for k in range(6)]
    straight = numbers(9, 3, 3).float().requires_grad_()
    optimizer = LARS([straight], 0.1, weight_decay=1e-3)
    train(optimizer, [straight], gradients[:3])
    saved, weights = copy.deepcopy(optimizer.state_dict()), straight.detach().clone()
    train(optimizer, [straight], gradients[3:])
    resumed = weights.requires_grad_()
    again = LARS([resumed], 0.7)
    again.load_state_dict(saved)
    train(again, [resumed], gradients[3:])
    assert torch.equal(straight, resumed)


@pytest.mark.parametrize(
    ("argument", "value"), [("momentum", -0.1), ("weight_decay", -1.0), ("trust_coefficient", 0.0)]
)
def test_a_wrong_argument_is_named(argument: str, value: float) -> None:
    options: dict[str, Any] = {argument: value}
    with pytest.raises(ValueError, match=f"^{argument} is "):
        LARS([torch.ones(1, requires_grad=True)], 0.1, **options)
