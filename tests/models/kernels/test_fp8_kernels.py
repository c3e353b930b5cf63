"""The kernels around products in fp8 against the same numbers in float64."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from tests.support.triton_kernels import DEVICE, INTERPRETED, kernel_test

TYPES = (torch.float8_e4m3fn, torch.float8_e5m2)
LEAST = 2.0**-40


def rows(transform: str) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Numbers, slopes, and the exact result of the transform."""
    torch.manual_seed(0)
    x = (torch.randn(5, 40) * torch.randn(5, 1).mul(2).exp()).to(DEVICE)
    x[3] = 0
    slope = torch.randn(5, 40).to(DEVICE)
    exact = x.double().requires_grad_()
    y = functional.gelu(exact, approximate="tanh")
    if transform == "gelu":
        return x, slope, y.detach()
    y.backward(slope.double())
    assert exact.grad is not None
    return x, slope, x.double() if transform == "none" else exact.grad


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("transform", ["none", "gelu", "gelu gradient"])
@kernel_test
def test_rows_are_rounded_once_with_scales_that_are_powers_of_two(
    transform: str, dtype: torch.dtype
) -> None:
    from vflops.models.kernels.fp8_kernels import rounded_rows

    x, slope, exact = rows(transform)
    found, scales = rounded_rows(
        x,
        dtype,
        LEAST,
        transform,  # type: ignore[arg-type]
        slope if transform == "gelu gradient" else None,
    )
    assert torch.equal(scales.log2(), scales.log2().round())
    information = torch.finfo(dtype)
    peaks = exact.abs().amax(1, keepdim=True)
    # The largest number of a row is in the upper half of what the type can hold.
    used = (peaks / scales / information.max)[peaks > 0]
    assert ((used > 0.49) & (used <= 1 + 1e-6)).all()
    error = (found.double() * scales - exact).abs()
    # Half a unit in the last place, and fp32 arithmetic. Numbers too small for the type are rounded
    # to a multiple of its smallest.
    smallest = information.smallest_normal * information.eps
    bound = (exact.abs() * information.eps * 1.001 + scales * smallest) / 2 + 1e-6 * peaks
    is_near = error <= bound
    # The interpreter loses the carry of 1.99 that is rounded up to 2.
    assert is_near.all() if not INTERPRETED else is_near.double().mean() > 0.9
    if transform != "gelu gradient":
        assert not found[3].float().any()


@pytest.mark.parametrize("shape", [(128, 128), (100, 70), (16, 260)])
@kernel_test
def test_a_matrix_is_transposed_and_its_rows_scaled(shape: tuple[int, int]) -> None:
    from vflops.models.kernels.fp8_kernels import transposed_rows

    torch.manual_seed(0)
    x = torch.randn(shape)
    x = (x + 0.02 * x.sign()).to(DEVICE).to(torch.float8_e5m2)
    factors = torch.exp2(torch.randint(-8, 1, shape[:1]).float()).to(DEVICE)
    plain = transposed_rows(x, None)
    assert torch.equal(plain.view(torch.uint8), x.view(torch.uint8).t())
    # Powers of two change no digit as long as the numbers stay normal.
    scaled = transposed_rows(x, factors)
    assert torch.equal(scaled.float(), (x.float() * factors[:, None]).t())
