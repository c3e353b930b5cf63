"""Each kernel agrees with its formula, in fp32, where only the order of sums differs.

Without a GPU they run in Triton's interpreter, in a separate process that this file starts:
Triton chooses between compiler and interpreter when the kernels are imported.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from vflops.models.fused_stem import space_to_depth, stem_weight, stem_weight_gradient

if TYPE_CHECKING:
    from vflops.models.kernels.fused_operators import Sums

GPU = torch.cuda.is_available()
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = "cpu" if INTERPRETED else "cuda"


def kernel_test(test: Callable[..., None]) -> Callable[..., None]:
    """Mark a test of a kernel, which runs on a GPU or in the interpreter."""
    lacking = find_spec("triton") is None or not (GPU or INTERPRETED)
    test = pytest.mark.skipif(lacking, reason="needs Triton and a GPU")(test)
    return test if INTERPRETED else pytest.mark.gpu(test)


def activation(batch: int, channels: int, size: int) -> Tensor:
    return torch.randn(batch, size, size, channels, device=DEVICE).permute(0, 3, 1, 2)


def total(sums: Sums) -> Tensor:
    return sums.partial.double().sum(0)


def near(a: Tensor, b: Tensor, tolerance: float | None = None) -> None:
    if tolerance is None:  # a GPU's tensor cores round fp32 operands to tf32
        tolerance = 1e-5 if INTERPRETED else 2e-3
    assert a.shape == b.shape
    a, b = a.detach().double(), b.detach().double()
    distance = float((a - b).norm() / b.norm())
    assert distance < tolerance, distance


def channels_of(row: Tensor) -> Tensor:
    return row.double()[None, :, None, None]


@pytest.mark.skipif(find_spec("triton") is None, reason="Triton comes with torch's builds for GPUs")
@pytest.mark.skipif(GPU or INTERPRETED, reason="runs as it is")
def test_the_kernels_in_the_interpreter() -> None:
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", __file__]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if "only 0-dimensional arrays" in done.stdout:
        pytest.skip("Triton 3.6's interpreter does not run with numpy 2.4 and later")
    assert done.returncode == 0, done.stdout


@kernel_test
@pytest.mark.parametrize("normalised", [False, True])
@pytest.mark.parametrize("shape", [(64, 64), (64, 256), (256, 64), (256, 128), (128, 512)])
def test_a_convolution_forward_and_its_sums(shape: tuple[int, int], normalised: bool) -> None:
    from vflops.models.kernels import fused_operators

    torch.manual_seed(0)
    channels_in, channels_out = shape
    x = activation(2, channels_in, 16)
    weight = torch.randn(channels_out, channels_in, 1, 1, device=DEVICE) / channels_in**0.5
    bn = torch.randn(4, channels_in, device=DEVICE) if normalised else None
    tile = fused_operators.FORWARD[shape]
    if not INTERPRETED and channels_in > 64:
        pytest.skip("fp32 tiles of this many channels do not fit a multiprocessor")
    y, sums = fused_operators.conv1x1_forward(x, bn, weight, tile)
    read = x.double()
    if bn is not None:
        read = functional.relu(read * channels_of(bn[0]) + channels_of(bn[1]))
    expected = functional.conv2d(read, weight.double())
    near(y, expected)
    near(total(sums), torch.stack([y.double().sum((0, 2, 3)), (y.double() ** 2).sum((0, 2, 3))]))


@kernel_test
@pytest.mark.skipif(not INTERPRETED, reason="fp32 tiles do not fit a multiprocessor")
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
) -> None:
    from dataclasses import replace

    from vflops.models.kernels import fused_operators

    torch.manual_seed(1)
    channels_in, channels_out = shape
    size = 8
    g, y = activation(2, channels_out, size), activation(2, channels_out, size)
    x, before, other = (activation(2, channels_in, size) for _ in range(3))
    bn, coefficients = torch.randn(4, channels_out), torch.randn(3, channels_out)
    x_bn = torch.randn(4, channels_in) if normalised else None
    weight = torch.randn(channels_out, channels_in, 1, 1) / channels_out**0.5
    added = (None, activation(2, channels_in, size), activation(2, channels_in, size // 2))[
        shortcut
    ]
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
    near(dw, torch.einsum("nohw,nihw->oi", dy, read))
    expected = functional.conv_transpose2d(dy, weight.double())
    if shortcut == 1:
        assert added is not None
        expected = expected + added.double()
    if shortcut == 2:
        assert added is not None
        expected[:, :, ::2, ::2] += added.double()
    if sums:
        expected = expected * (read > 0)
    near(dx, expected)
    assert (actual is None) == (sums == 0)
    if actual is not None:
        factors = [torch.ones_like(x), x if normalised else before, other][:sums]
        near(total(actual), torch.stack([(dx.double() * f).sum((0, 2, 3)) for f in factors]))


@kernel_test
@pytest.mark.parametrize("channels", [64, 256])
def test_batch_normalisation_forward_and_backward(channels: int) -> None:
    from vflops.models.kernels import fused_operators

    torch.manual_seed(2)
    y = activation(4, channels, 8) * 2 + 1
    g = activation(4, channels, 8)
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
    near(fused_operators.normalise(y, coefficients), expected, 1e-5)
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
    near(dy, read.grad, 1e-4)
    near(dweight, bn.weight.grad, 1e-4)
    near(dbias, bn.bias.grad, 1e-4)


@kernel_test
@pytest.mark.parametrize("strided", [False, True])
def test_gradients_that_join(strided: bool) -> None:
    from vflops.models.kernels import fused_operators

    torch.manual_seed(3)
    g, output, y, other = (activation(2, 128, 8) for _ in range(4))
    shortcut = activation(2, 128, 4 if strided else 8)
    joined, sums = fused_operators.join_gradients(g, shortcut, output, y, other)
    expected = g.double()
    if strided:
        expected[:, :, ::2, ::2] += shortcut.double()
    else:
        expected = expected + shortcut.double()
    expected = expected * (output > 0)
    near(joined, expected, 1e-6)
    factors = torch.stack([torch.ones_like(y), y, other]).double()
    near(total(sums), (expected * factors).sum((1, 3, 4)), 1e-5)


@kernel_test
def test_shortcuts_are_added_before_the_relu() -> None:
    from vflops.models.kernels import fused_operators

    torch.manual_seed(4)
    y, shortcut = activation(2, 128, 8), activation(2, 128, 8)
    bn, other = torch.randn(4, 128, device=DEVICE), torch.randn(4, 128, device=DEVICE)
    plain = y.double() * channels_of(bn[0]) + channels_of(bn[1])
    near(
        fused_operators.normalise(y, bn, shortcut), functional.relu(plain + shortcut.double()), 1e-6
    )
    scaled = shortcut.double() * channels_of(other[0]) + channels_of(other[1])
    near(fused_operators.normalise(y, bn, shortcut, other), functional.relu(plain + scaled), 1e-6)


@kernel_test
def test_the_stem_with_its_pool_forward_and_backward() -> None:
    from vflops.models.kernels import fused_operators, stem_operators

    torch.manual_seed(5)
    x = torch.randn(2, 3, 32, 64, device=DEVICE)
    images = stem_operators.space_to_depth(x, torch.float32)
    assert torch.equal(images, space_to_depth(x))
    weight = torch.randn(64, 3, 7, 7, device=DEVICE, dtype=torch.float64).mul_(0.1).requires_grad_()
    bn = nn.BatchNorm2d(64).to(DEVICE).double()
    nn.init.normal_(bn.weight, 0, 1)  # of either sign: the pool must compare normalised values
    nn.init.normal_(bn.bias, 0, 0.3)
    expected = functional.conv2d(x.double(), weight, stride=2, padding=3)
    pooled = functional.max_pool2d(functional.relu(bn(expected)), 3, 2, 1)
    packed = stem_weight(weight.detach().float())
    if INTERPRETED:
        y, sums = stem_operators.stem_forward(images, packed)
    else:  # fp32 tiles do not fit a multiprocessor
        y = functional.conv2d(images, packed)
        sums = fused_operators.channel_sums(y)
    near(y, expected)
    gamma, beta = bn.weight.detach().float(), bn.bias.detach().float()
    running = torch.zeros(64, device=DEVICE), torch.ones(64, device=DEVICE)
    count = fused_operators.pixels(y)
    coefficients = fused_operators.forward_coefficients(
        sums, count, gamma, beta, *running, 0.1, bn.eps
    )
    chosen, where = stem_operators.pool_forward(y, coefficients)
    scale, shift = channels_of(coefficients[0]), channels_of(coefficients[1])
    near(functional.relu(chosen.double() * scale + shift), pooled)
    if not INTERPRETED:
        return
    g = torch.randn_like(pooled)
    pooled.backward(g)
    masked = (g * (pooled > 0)).float().contiguous(memory_format=torch.channels_last)
    grad_sums = fused_operators.gradient_sums(masked, chosen, None)
    backward, dgamma, dbeta = fused_operators.backward_coefficients(
        grad_sums, count, gamma, coefficients
    )
    dw = stem_operators.stem_backward(masked, where, y, backward, images)
    assert bn.weight.grad is not None
    assert bn.bias.grad is not None
    assert weight.grad is not None
    near(dgamma, bn.weight.grad, 1e-4)
    near(dbeta, bn.bias.grad, 1e-4)
    near(stem_weight_gradient(dw, 3), weight.grad, 1e-4)
