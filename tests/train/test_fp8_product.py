"""Products in fp8: as near to the exact ones as rounding each operand once allows."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.train.test_eight_bit import CUDA, skip_if_refused
from vflops.models.language.transformer import Mlp
from vflops.models.language.transformer_design import TransformerDesign
from vflops.train.eight_bit import convert, converted_layers
from vflops.train.fp8_product import fp8_gelu_mlp, fp8_product, rounded_rows

E4M3, E5M2 = 2.0**-4, 2.0**-3
"""Unit roundoffs of activations and weights, and of gradients."""


def expected_error(*roundoffs: float) -> float:
    """Return the relative error of a product if each of its factors is rounded.

    Relative errors of elements are spread evenly between −u and u at most, and independent.
    """
    return math.sqrt(sum(u * u / 3 for u in roundoffs))


def relative(found: Tensor, exact: Tensor) -> float:
    return float((found.double() - exact).norm() / exact.norm())


def operands(device: str, *shapes: tuple[int, int]) -> list[Tensor]:
    torch.manual_seed(0)
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    made = [torch.randn(shape) for shape in shapes]
    made[0] *= torch.randn(shapes[0][0], 1).exp()  # each row has its own scale
    return [x.to(device, dtype).requires_grad_() for x in made]


def gradients(y: Tensor, *tensors: Tensor) -> list[Tensor]:
    torch.manual_seed(1)
    slope = torch.randn(y.shape).to(y.device, y.dtype)
    return [y.detach(), *torch.autograd.grad(y, tensors, slope)]


@pytest.mark.parametrize("device", ["cpu", CUDA])
def test_all_three_products_are_those_of_rounded_operands(device: str) -> None:
    skip_if_refused("fp8", device)
    x, weight = operands(device, (64, 96), (32, 96))
    found = gradients(fp8_product(x, weight), x, weight)
    exact_x, exact_weight = (t.detach().double().requires_grad_() for t in (x, weight))
    exact = gradients(exact_x @ exact_weight.t(), exact_x, exact_weight)
    backward = expected_error(E4M3, E5M2)
    bounds = (expected_error(E4M3, E4M3), backward, backward)
    for one, other, bound in zip(found, exact, bounds, strict=True):
        assert bound / 4 < relative(one, other) < 1.1 * bound


@pytest.mark.parametrize("device", ["cpu", CUDA])
def test_an_mlp_with_gelu_is_that_of_separate_layers(device: str) -> None:
    skip_if_refused("fp8", device)
    x, up, down = operands(device, (64, 32), (128, 32), (32, 128))
    found = gradients(fp8_gelu_mlp(x, up, down), x, up, down)
    exact_x, exact_up, exact_down = (t.detach().double().requires_grad_() for t in (x, up, down))
    inner = functional.gelu(exact_x @ exact_up.t(), approximate="tanh")
    exact = gradients(inner @ exact_down.t(), exact_x, exact_up, exact_down)
    forward = (E4M3,) * 4  # 1.25 below: GELU bends errors, too
    backward = expected_error(*forward, E5M2, E5M2)
    bounds = (expected_error(*forward), backward, backward, backward)
    for one, other, bound in zip(found, exact, bounds, strict=True):
        assert bound / 4 < relative(one, other) < 1.25 * bound


def test_gradients_of_rows_that_are_orders_of_magnitude_apart_add_up() -> None:
    """No scale of a row may be forgotten in the sum over rows."""
    skip_if_refused("fp8")
    x, weight = operands("cpu", (32, 16), (16, 16))
    slope = torch.zeros(32, 16)
    slope[3], slope[7] = 1e-6, 1e3
    (found,) = torch.autograd.grad(fp8_product(x, weight), weight, slope)
    assert relative(found, (slope.t() @ x).detach().double()) < E4M3 + E5M2
    (found,) = torch.autograd.grad(fp8_product(x, weight), weight, slope * (slope < 1))
    assert relative(found, ((slope * (slope < 1)).t() @ x).detach().double()) < E4M3 + E5M2


def test_scales_are_powers_of_two_and_rows_of_zeros_stay() -> None:
    x = torch.randn(4, 16)
    x[2] = 0
    found, scales = rounded_rows(x, torch.float8_e5m2)
    assert torch.equal(scales.log2(), scales.log2().round())
    assert not found[2].float().any()


def test_an_mlp_of_a_transformer_is_converted_with_its_layers() -> None:
    skip_if_refused("fp8")
    torch.manual_seed(0)
    mlp = Mlp(TransformerDesign(width=32, mlp_width=64))
    x = torch.randn(2, 16, 32)
    exact, names = mlp(x).detach(), list(mlp.state_dict())
    assert convert(mlp, "fp8") == 2 == converted_layers(mlp)
    assert list(mlp.state_dict()) == names
    assert 1e-3 < relative(mlp(x).detach(), exact.double()) < 3 * E4M3
    few = torch.randn(3, 5, 32)  # 15 rows do not fit: computed without fp8
    plain = Mlp(TransformerDesign(width=32, mlp_width=64))
    plain.load_state_dict(mlp.state_dict())
    assert torch.equal(mlp(few), plain(few))


def test_gated_mlps_keep_their_layers() -> None:
    mlp = Mlp(TransformerDesign(style="llama", width=32, mlp_width=64))
    assert convert(mlp, "fp8") == 3
    assert type(mlp) is Mlp and isinstance(mlp.up, nn.Linear)
