from __future__ import annotations

import math

import pytest
import torch

from vflops.machine.ceilings import convolution
from vflops.machine.ceilings.ceiling_plan import DIRECTIONS
from vflops.machine.ceilings.convolution_shapes import ConvolutionShape
from vflops.machine.ceilings.reference import convolution_error, product_error, relative_error

SHAPES = (
    ConvolutionShape("test", 6, 10, 9, 11, 1),
    ConvolutionShape("test", 6, 10, 9, 11, 3),
    ConvolutionShape("test", 6, 10, 10, 12, 3, 2),
    ConvolutionShape("test", 3, 8, 16, 18, 7, 2),
    ConvolutionShape("test", 6, 10, 10, 12, 1, 2),
)


def _generator() -> torch.Generator:
    return torch.Generator().manual_seed(3)


@pytest.mark.parametrize("noise", [1e-6, 1e-3, 0.5])
def test_product_error_estimates_the_relative_frobenius_error(noise: float) -> None:
    torch.manual_seed(0)
    a, b = torch.randn(120, 70).double(), torch.randn(70, 90).double()
    exact = a @ b
    disturbed = exact + noise * torch.randn_like(exact) * exact.norm() / math.sqrt(exact.numel())
    full = float((disturbed - exact).norm() / exact.norm())
    assert product_error(a, b, disturbed, _generator()) == pytest.approx(full, rel=0.25)
    assert product_error(a, b, exact, _generator()) < 1e-14


def test_one_unwritten_element_makes_the_product_error_nan() -> None:
    a, b = torch.randn(64, 32), torch.randn(32, 48)
    out = a @ b
    out[17, 5] = math.nan
    assert math.isnan(product_error(a, b, out, _generator()))


def _operands(shape: ConvolutionShape) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    torch.manual_seed(1)
    x = torch.randn(3, shape.channels_in, shape.height, shape.width).double()
    weight = torch.randn(shape.channels_out, shape.channels_in, shape.kernel, shape.kernel).double()
    gradient = torch.randn(3, shape.channels_out, shape.height_out, shape.width_out).double()
    return x, weight, gradient


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("shape", SHAPES)
def test_convolution_reference_agrees_with_torch_in_float64(
    shape: ConvolutionShape, direction: str
) -> None:
    x, weight, gradient = _operands(shape)
    result = convolution.call_of(direction, shape, x, weight, gradient)()
    error = convolution_error(shape, direction, x, weight, gradient, result, _generator())
    assert error < 1e-13


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_convolution_error_estimates_the_relative_frobenius_error(direction: str) -> None:
    shape = ConvolutionShape("test", 32, 48, 12, 14, 3)
    x, weight, gradient = _operands(shape)
    exact = convolution.call_of(direction, shape, x, weight, gradient)()
    disturbed = exact + 0.01 * torch.randn_like(exact) * exact.std()
    full = relative_error(disturbed, exact)
    estimate = convolution_error(shape, direction, x, weight, gradient, disturbed, _generator())
    assert estimate == pytest.approx(full, rel=0.25)
    disturbed[0, 0, 0, 0] = math.nan
    assert math.isnan(
        convolution_error(shape, direction, x, weight, gradient, disturbed, _generator())
    )
