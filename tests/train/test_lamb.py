"""LAMB against the paper's algorithm 2, written out number by number."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from vflops.train.lamb import LAMB

STEPS = 4


def norm(values: list[float]) -> float:
    return math.sqrt(math.fsum(x * x for x in values))


def published(
    w: list[float],
    gradients: list[list[float]],
    rates: list[float],
    *,
    betas: tuple[float, float],
    epsilon: float,
    decay: float,
    adapt: bool = True,
) -> list[float]:
    """You et al. 2019, algorithm 2 with bias correction, for one layer."""
    m, v = [0.0] * len(w), [0.0] * len(w)
    for t, (g, rate) in enumerate(zip(gradients, rates, strict=True), start=1):
        m = [betas[0] * mi + (1 - betas[0]) * gi for mi, gi in zip(m, g, strict=True)]
        v = [betas[1] * vi + (1 - betas[1]) * gi * gi for vi, gi in zip(v, g, strict=True)]
        u = []
        for mi, vi, wi in zip(m, v, w, strict=True):
            m_hat, v_hat = mi / (1 - betas[0] ** t), vi / (1 - betas[1] ** t)
            u.append(m_hat / (math.sqrt(v_hat) + epsilon) + decay * wi)
        ratio = norm(w) / norm(u) if adapt and norm(w) > 0 and norm(u) > 0 else 1.0
        w = [wi - rate * ratio * ui for wi, ui in zip(w, u, strict=True)]
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
    st.sampled_from([(0.9, 0.999), (0.5, 0.9), (0.88, 0.98)]),
    st.sampled_from([1e-6, 1e-8, 1e-3]),
    st.floats(0, 0.1),
    st.booleans(),
    st.integers(0, 2**31),
)
def test_several_layers_and_steps_follow_the_paper(
    layers: list[tuple[int, ...]],
    betas: tuple[float, float],
    epsilon: float,
    decay: float,
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
    optimizer = LAMB(
        [{"params": parameters, "adapt": adapt}],
        0.0,
        betas=betas,
        epsilon=epsilon,
        weight_decay=decay,
    )
    for rate, of_step in zip(rates, gradients, strict=True):
        optimizer.param_groups[0]["lr"] = rate
        train(optimizer, parameters, [of_step])
    for i, parameter in enumerate(parameters):
        expected = published(
            start[i].flatten().tolist(),
            [of_step[i].flatten().tolist() for of_step in gradients],
            rates,
            betas=betas,
            epsilon=epsilon,
            decay=decay,
            adapt=adapt,
        )
        assert parameter.flatten().tolist() == pytest.approx(expected, rel=1e-8, abs=1e-9)


def test_the_first_correction_of_fp32_is_exact_enough() -> None:
    parameter = torch.tensor([1.0], requires_grad=True)
    optimizer = LAMB([{"params": [parameter], "adapt": False}], 1.0, epsilon=1e-12)
    train(optimizer, [parameter], [[torch.tensor([0.3])]])
    # With 1 − 0.999 in fp32 this would be off by 1e-5.
    assert abs(parameter.item()) < 3e-7


def test_without_adaptation_and_decay_it_is_torchs_adam() -> None:
    start, gradients = numbers(1, 4, 3), [[numbers(k, 4, 3)] for k in range(2, 7)]
    ours, theirs = start.clone().requires_grad_(), start.clone().requires_grad_()
    train(LAMB([{"params": [ours], "adapt": False}], 0.1, epsilon=1e-8), [ours], gradients)
    train(torch.optim.Adam([theirs], 0.1, eps=1e-8), [theirs], gradients)
    assert torch.allclose(ours, theirs, rtol=1e-12)


@pytest.mark.parametrize("zero", ["weights", "gradients"])
def test_a_norm_of_zero_means_a_ratio_of_one(zero: str) -> None:
    start = torch.zeros(3) if zero == "weights" else torch.ones(3)
    gradient = torch.zeros(3) if zero == "gradients" else torch.ones(3)
    parameter = start.clone().requires_grad_()
    train(LAMB([parameter], 0.5), [parameter], [[gradient]])
    expected = start - 0.5 * gradient  # the first step of Adam is the sign
    assert torch.allclose(parameter.detach(), expected, atol=1e-5)


def test_all_layers_at_once_and_one_by_one_are_bit_identical() -> None:
    start = [numbers(i, 3, i + 1).float() for i in range(5)]
    gradients = [[numbers(10 * k + i, 3, i + 1).float() for i in range(5)] for k in range(3)]
    together = [w.clone().requires_grad_() for w in start]
    train(LAMB(together, 0.1, weight_decay=1e-3), together, gradients)
    for i, w in enumerate(start):
        alone = w.clone().requires_grad_()
        train(LAMB([alone], 0.1, weight_decay=1e-3), [alone], [[g[i]] for g in gradients])
        assert torch.equal(alone, together[i])


def test_a_parameter_counts_only_its_own_steps() -> None:
    late, always = torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)
    optimizer = LAMB([late, always], 0.1)
    always.grad = torch.ones(2)
    optimizer.step()
    late.grad = torch.ones(2)
    optimizer.step()
    steps = [float(optimizer.state[p]["step"]) for p in (late, always)]
    assert steps == [1.0, 2.0]
    fresh = torch.ones(2, requires_grad=True)
    train(LAMB([fresh], 0.1), [fresh], [[torch.ones(2)]])
    assert torch.equal(late, fresh)


def test_a_resumed_state_continues_bit_for_bit() -> None:
    gradients = [[numbers(k, 3, 3).float()] for k in range(6)]
    straight = numbers(9, 3, 3).float().requires_grad_()
    optimizer = LAMB([straight], 0.1, weight_decay=1e-3)
    train(optimizer, [straight], gradients[:3])
    saved, weights = copy.deepcopy(optimizer.state_dict()), straight.detach().clone()
    train(optimizer, [straight], gradients[3:])
    resumed = weights.requires_grad_()
    again = LAMB([resumed], 0.7)
    again.load_state_dict(saved)
    train(again, [resumed], gradients[3:])
    assert torch.equal(straight, resumed)


@pytest.mark.parametrize(
    ("argument", "value"),
    [("betas", (1.0, 0.9)), ("betas", (0.9, 0.0)), ("epsilon", 0.0), ("weight_decay", -1.0)],
)
def test_a_wrong_argument_is_named(argument: str, value: Any) -> None:
    options: dict[str, Any] = {argument: value}
    with pytest.raises(ValueError, match=f"^{argument}"):
        LAMB([torch.ones(1, requires_grad=True)], 0.1, **options)
