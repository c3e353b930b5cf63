"""AdamW on bf16: the steps of AdamW in float64, rounded up or down without a bias."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from torch import Tensor, nn

from tests.support.triton_kernels import DEVICE, kernel_test
from vflops.train.optimizers import build, set_learning_rate
from vflops.train.rounded_adamw import RoundedAdamW, random_bits, store_rounded

COUNT = 4096
BETAS = (0.9, 0.95)
OPTIONS = {"betas": BETAS, "epsilon": 1e-8, "weight_decay": 0.1}


def stepped(
    parameter: Tensor, gradient: Tensor, moments: tuple[Tensor, Tensor], step: int, rate: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the parameter and its moments after a step of AdamW in float64."""
    beta1, beta2 = BETAS
    p, g, m, v = (t.double() for t in (parameter, gradient, *moments))
    m, v = beta1 * m + (1 - beta1) * g, beta2 * v + (1 - beta2) * g * g
    direction = m / (1 - beta1**step) / ((v / (1 - beta2**step)).sqrt() + 1e-8)
    return p * (1 - rate * 0.1) - rate * direction, m, v


def check_unbiased(found: Tensor, exact: Tensor) -> None:
    """Assert that each is a neighbour of the exact number, and that errors cancel."""
    unit = torch.exp2(exact.abs().log2().floor() - 7)
    error = (found.double() - exact) / unit
    assert error.abs().max() < 1.001
    # Each error has a standard deviation of at most half a unit; six of the mean's are never seen.
    assert error.mean().abs() < 6 * 0.5 / math.sqrt(len(error))
    assert error.abs().mean() > 0.1  # and they are rounded


def numbers() -> tuple[Tensor, Tensor, tuple[Tensor, Tensor]]:
    torch.manual_seed(0)
    p, g, m = (torch.randn(COUNT, device=DEVICE).bfloat16() for _ in range(3))
    return p, g, (m, torch.rand(COUNT, device=DEVICE).bfloat16())


def test_a_step_is_that_of_adamw() -> None:
    parameter, gradient, moments = numbers()
    optimizer = RoundedAdamW([parameter], 1e-3, **OPTIONS)  # type: ignore[arg-type]
    state = optimizer.state[parameter]
    state["first_moment"].copy_(moments[0])
    state["second_moment"].copy_(moments[1])
    state["step"].fill_(4)
    exact = stepped(parameter, gradient, moments, 5, 1e-3)
    parameter.grad = gradient
    optimizer.step()
    for found, expected in zip(
        (parameter, state["first_moment"], state["second_moment"]), exact, strict=True
    ):
        assert found.dtype is torch.bfloat16
        check_unbiased(found, expected)


@kernel_test
def test_the_kernel_takes_the_same_step() -> None:
    from vflops.models.kernels.rounded_adam_kernel import update

    parameter, gradient, moments = numbers()
    exact = stepped(parameter, gradient, moments, 5, 1e-3)
    rate, step = (torch.tensor(value, device=DEVICE) for value in (1e-3, 5.0))
    update(parameter, gradient, moments, rate, step, 3, **OPTIONS)  # type: ignore[arg-type]
    for found, expected in zip((parameter, *moments), exact, strict=True):
        check_unbiased(found, expected)


def test_small_steps_are_not_lost() -> None:
    """A step of 1/50 of a unit moves weights by that much on average."""
    parameter = nn.Parameter(torch.ones(COUNT).bfloat16())
    optimizer = RoundedAdamW([parameter], 2.0**-8 / 50, betas=(0.9, 0.95))
    for _ in range(100):
        parameter.grad = -torch.ones(COUNT).bfloat16()
        optimizer.step()
    moved = parameter.detach().double().mean() - 1
    # 100 steps of rate 2⁻⁸ / 50; above 1 a unit is 2⁻⁷, and each step's error at most half of that
    # in standard deviation.
    assert abs(moved - 2 * 2.0**-8) < 6 * math.sqrt(100) * 2.0**-8 / math.sqrt(COUNT)


def test_the_noise_is_a_function_of_step_and_parameter() -> None:
    like = torch.empty(64, 64)
    first = random_bits(like, torch.tensor(3.0), 0)
    assert torch.equal(first, random_bits(like, torch.tensor(3.0), 0))
    for other in (random_bits(like, torch.tensor(4.0), 0), random_bits(like, torch.tensor(3.0), 1)):
        assert (first != other).float().mean() > 0.99
    # 16 bits of 4,096 numbers, each 0 or 1 with a probability of a half
    shares = torch.stack([(first >> bit & 1).double().mean() for bit in range(32)])
    assert (shares - 0.5).abs().max() < 6 * 0.5 / 64


def test_infinities_and_nan_stay() -> None:
    values = torch.tensor([math.inf, -math.inf, math.nan, 3.0e38])
    target = torch.empty(4).bfloat16()
    store_rounded(target, values, torch.full((4,), 0xFFFF))
    assert target[0] == math.inf and target[1] == -math.inf and target[2].isnan()


def test_a_resumed_training_takes_the_same_steps() -> None:
    torch.manual_seed(0)
    start, slopes = torch.randn(32, 8), [torch.randn(32, 8) for _ in range(6)]

    def trained(count: int, optimizer: torch.optim.Optimizer, weight: nn.Parameter) -> None:
        for slope in slopes[count : count + 3]:
            set_learning_rate(optimizer, 1e-2)
            weight.grad = slope.bfloat16()
            optimizer.step()

    whole = nn.Parameter(start.bfloat16())
    optimizer = build("adamw", [whole], learning_rate=1e-2)
    assert isinstance(optimizer, RoundedAdamW)
    trained(0, optimizer, whole)
    saved, weights = copy.deepcopy(optimizer.state_dict()), whole.detach().clone()
    trained(3, optimizer, whole)
    resumed = nn.Parameter(weights)
    again = build("adamw", [resumed], learning_rate=1.0)
    again.load_state_dict(saved)
    trained(3, again, resumed)
    assert torch.equal(whole, resumed)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"precision": "bf16"}, "only adamw does, not sgd: use precision mixed-bf16"),
        ({"precision": "fp8", "optimizer": "adamw", "ranks": 2}, "one rank, not with 2"),
    ],
)
def test_what_bf16_weights_do_not_offer_is_refused(
    settings: dict[str, object], message: str
) -> None:
    from vflops.config.training import TrainSettings

    with pytest.raises(ValueError, match=message):
        TrainSettings.model_validate(settings)
