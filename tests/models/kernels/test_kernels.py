"""Each kernel agrees with its formula, in fp32 and in fp16, on a GPU or in Triton's interpreter."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.grad import conv2d_weight

from tests.support.triton_kernels import DEVICE, INTERPRETED, kernel_test
from vflops.models.fused_stem import space_to_depth, stem_weight, stem_weight_gradient

if TYPE_CHECKING:
    from vflops.models.kernels.fused_operators import Sums


TYPES = [torch.float32, torch.float16]
# Only the order of sums differs in fp32, but a GPU's tensor cores round its operands to tf32. In
# fp16, operands and results are rounded: 2^-11 at most, about a third of it on average.
TOLERANCE = {torch.float32: 1e-5 if INTERPRETED else 2e-3, torch.float16: 1e-3}
ROUNDING = {torch.float32: 1e-6, torch.float16: 1e-3}
"""Without products of matrices."""


def random(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(shape, device=DEVICE).to(dtype)


def activation(batch: int, channels: int, size: int, dtype: torch.dtype) -> Tensor:
    return random(batch, size, size, channels, dtype=dtype).permute(0, 3, 1, 2)


def total(sums: Sums) -> Tensor:
    return sums.partial.double().sum(0)


def near(a: Tensor, b: Tensor, tolerance: float) -> None:
    assert a.shape == b.shape
    a, b = a.detach().double(), b.detach().double()
    distance = float((a - b).norm() / b.norm())
    assert distance < tolerance, distance


def channels_of(row: Tensor) -> Tensor:
    return row.double()[None, :, None, None]


def skip_if_too_large(dtype: torch.dtype) -> None:
    """Skip a test of tiles that only fit a GPU in half precision."""
    if dtype == torch.float32 and not INTERPRETED:
        pytest.skip("fp32 tiles do not fit a multiprocessor")


@kernel_test
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("normalised", [False, True])
@pytest.mark.parametrize("shape", [(64, 64), (64, 256), (256, 64), (256, 128), (128, 512)])
def test_a_convolution_forward_and_its_sums(
    shape: tuple[int, int], normalised: bool, dtype: torch.dtype
) -> None:
    from vflops.models.kernels import fused_operators

    torch.manual_seed(0)
    channels_in, channels_out = shape
    if channels_in > 64:
        skip_if_too_large(dtype)
    x = activation(2, channels_in, 16, dtype)
    weight = (random(channels_out, channels_in, 1, 1) / channels_in**0.5).to(dtype)
    bn = random(4, channels_in) if normalised else None
    y, sums = fused_operators.conv1x1_forward(x, bn, weight)
    read = x.double()
    if bn is not None:
        read = functional.relu(read * channels_of(bn[0]) + channels_of(bn[1]))
    near(y, functional.conv2d(read, weight.double()), TOLERANCE[dtype])
    written = y.double()
    near(total(sums), torch.stack([written.sum((0, 2, 3)), (written**2).sum((0, 2, 3))]), 1e-5)


@kernel_test
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(
    ("shape", "normalised", "shortcut", "sums"),
    [
        ((64, 256), True, 0, 2),
        ((64, 256), True, 0, 0),
        ((64, 64), True, 1, 2),
        ((256, 64), False, 1, 2),
        ((256, 64), False, 1, 3),
        ((256, 128), False, 2, 2),
        ((512, 128), False, 1, 3),
    ],
)
@pytest.mark.parametrize("own_mask", [False, True])
@pytest.mark.parametrize("thread_sums", [False, True])
def test_a_convolution_backward(
    shape: tuple[int, int],
    normalised: bool,
    shortcut: int,
    sums: int,
    own_mask: bool,
    thread_sums: bool,
    dtype: torch.dtype,
) -> None:
    from vflops.models.kernels import fused_operators

    skip_if_too_large(dtype)
    torch.manual_seed(1)
    channels_in, channels_out = shape
    size = 8
    g, y = (activation(2, channels_out, size, dtype) for _ in range(2))
    x, before, other = (activation(2, channels_in, size, dtype) for _ in range(3))
    bn, coefficients = random(4, channels_out), random(3, channels_out)
    x_bn = random(4, channels_in) if normalised else None
    weight = (random(channels_out, channels_in, 1, 1) / channels_out**0.5).to(dtype)
    added = activation(2, channels_in, size // shortcut, dtype) if shortcut else None
    dx, dw, actual = fused_operators.conv1x1_backward(
        g,
        y,
        bn,
        coefficients,
        weight,
        x,
        x_bn,
        own_mask=own_mask,
        shortcut=added,
        y_before=(x if normalised else before) if sums else None,
        y_other=other if sums == 3 else None,
        mask=bool(sums),
        tile=replace(fused_operators.BACKWARD[shape], thread_sums=thread_sums),
    )
    gradient, value = g.double(), y.double()
    if own_mask:
        gradient = gradient * (value * channels_of(bn[0]) + channels_of(bn[1]) > 0)
    a, b, c = (channels_of(row) for row in coefficients)
    dy = a * gradient + b * value + c
    read = x.double()
    if x_bn is not None:
        read = functional.relu(read * channels_of(x_bn[0]) + channels_of(x_bn[1]))
    near(dw, torch.einsum("nohw,nihw->oi", dy, read), TOLERANCE[dtype])
    expected = functional.conv_transpose2d(dy, weight.double())
    if added is not None:
        expected[:, :, ::shortcut, ::shortcut] += added.double()
    if sums:
        expected = expected * (read > 0)
    near(dx, expected, TOLERANCE[dtype])
    assert (actual is None) == (sums == 0)
    if actual is not None:
        factors = [torch.ones_like(x), x if normalised else before, other][:sums]
        written = [(dx.double() * factor).sum((0, 2, 3)) for factor in factors]
        near(total(actual), torch.stack(written), 1e-5)


@kernel_test
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("channels", [64, 256])
def test_batch_normalisation_forward_and_backward(channels: int, dtype: torch.dtype) -> None:
    from vflops.models.kernels import fused_operators

    torch.manual_seed(2)
    y = activation(4, channels, 8, dtype) * 2 + 1
    g = activation(4, channels, 8, dtype)
    bn = nn.BatchNorm2d(channels).to(DEVICE).double()
    nn.init.normal_(bn.weight, 1, 0.3)
    nn.init.normal_(bn.bias, 0, 0.3)
    running = torch.zeros(channels, device=DEVICE), torch.ones(channels, device=DEVICE)
    weight, bias = bn.weight.detach().float(), bn.bias.detach().float()
    count = fused_operators.pixels(y)
    coefficients = fused_operators.forward_coefficients(
        fused_operators.channel_sums(y), count, weight, bias, *running, 0.1, bn.eps
    )
    read = y.double().requires_grad_()
    expected = functional.relu(bn(read))
    near(fused_operators.normalise(y, coefficients), expected, 10 * ROUNDING[dtype])
    assert bn.running_mean is not None
    assert bn.running_var is not None
    near(running[0], bn.running_mean, 1e-5)
    near(running[1], bn.running_var, 1e-5)
    expected.backward(g.double())
    sums = fused_operators.gradient_sums(g, y, coefficients)
    backward, dweight, dbias = fused_operators.backward_coefficients(
        sums, count, weight, coefficients
    )
    dy = fused_operators.normalise_backward(g, y, coefficients, backward, mask=True)
    assert read.grad is not None
    assert bn.weight.grad is not None
    assert bn.bias.grad is not None
    near(dy, read.grad, max(1e-4, ROUNDING[dtype]))
    near(dweight, bn.weight.grad, 1e-4)
    near(dbias, bn.bias.grad, 1e-4)


@kernel_test
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("stride", [1, 2])
def test_gradients_that_join(stride: int, dtype: torch.dtype) -> None:
    from vflops.models.kernels import fused_operators

    torch.manual_seed(3)
    g, output, y, other = (activation(2, 128, 8, dtype) for _ in range(4))
    shortcut = activation(2, 128, 8 // stride, dtype)
    joined, sums = fused_operators.join_gradients(g, shortcut, output, y, other)
    expected = g.double()
    expected[:, :, ::stride, ::stride] += shortcut.double()
    near(joined, expected * (output > 0), ROUNDING[dtype])
    factors = torch.stack([torch.ones_like(y), y, other]).double()
    near(total(sums), (joined.double() * factors).sum((1, 3, 4)), 1e-5)


@kernel_test
@pytest.mark.parametrize("dtype", TYPES)
def test_shortcuts_are_added_before_the_relu(dtype: torch.dtype) -> None:
    from vflops.models.kernels import fused_operators

    torch.manual_seed(4)
    y, shortcut = activation(2, 128, 8, dtype), activation(2, 128, 8, dtype)
    bn, other = random(4, 128), random(4, 128)
    plain = y.double() * channels_of(bn[0]) + channels_of(bn[1])
    scaled = shortcut.double() * channels_of(other[0]) + channels_of(other[1])
    added = fused_operators.normalise(y, bn, shortcut)
    near(added, functional.relu(plain + shortcut.double()), ROUNDING[dtype])
    added = fused_operators.normalise(y, bn, shortcut, other)
    near(added, functional.relu(plain + scaled), ROUNDING[dtype])


@kernel_test
@pytest.mark.parametrize("dtype", TYPES)
def test_the_stem_with_its_pool_forward_and_backward(dtype: torch.dtype) -> None:
    from vflops.models.kernels import fused_operators, stem_operators

    skip_if_too_large(dtype)
    torch.manual_seed(5)
    x = random(2, 3, 32, 64)
    images = stem_operators.space_to_depth(x, dtype)
    assert torch.equal(images, space_to_depth(x).to(dtype))
    weight = (random(64, 3, 7, 7) * 0.1).to(dtype)
    y, sums = stem_operators.stem_forward(images, stem_weight(weight))
    pixels = x.to(dtype).double()
    near(y, functional.conv2d(pixels, weight.double(), stride=2, padding=3), TOLERANCE[dtype])
    bn = nn.BatchNorm2d(64).to(DEVICE).double()
    nn.init.normal_(bn.weight, 0, 1)  # of either sign: the pool must compare normalised values
    nn.init.normal_(bn.bias, 0, 0.3)
    read = y.double().requires_grad_()
    pooled = functional.max_pool2d(functional.relu(bn(read)), 3, 2, 1)
    gamma, beta = bn.weight.detach().float(), bn.bias.detach().float()
    running = torch.zeros(64, device=DEVICE), torch.ones(64, device=DEVICE)
    count = fused_operators.pixels(y)
    coefficients = fused_operators.forward_coefficients(
        sums, count, gamma, beta, *running, 0.1, bn.eps
    )
    chosen, where = stem_operators.pool_forward(y, coefficients)
    scale, shift = channels_of(coefficients[0]), channels_of(coefficients[1])
    near(functional.relu(chosen.double() * scale + shift), pooled, 1e-5)
    g = torch.randn_like(pooled).to(dtype)
    pooled.backward(g.double())
    masked = (g * (pooled > 0)).contiguous(memory_format=torch.channels_last)
    grad_sums = fused_operators.gradient_sums(masked, chosen, None)
    backward, dgamma, dbeta = fused_operators.backward_coefficients(
        grad_sums, count, gamma, coefficients
    )
    dw = stem_operators.stem_backward(masked, where, y, backward, images)
    assert read.grad is not None
    assert bn.weight.grad is not None
    assert bn.bias.grad is not None
    near(dgamma, bn.weight.grad, 1e-4)
    near(dbeta, bn.bias.grad, 1e-4)
    expected = conv2d_weight(pixels, list(weight.shape), read.grad, stride=2, padding=3)
    near(stem_weight_gradient(dw, 3), expected, max(1e-4, TOLERANCE[dtype]))
