"""The precisions: their types in torch, their tolerances, and their matrix products."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import torch

from vflops.machine.ceilings.ceiling_plan import Item

Fp32Mode = Literal["ieee", "tf32"]

_INT8_SPREAD = 40.0
"""Standard deviation of random integers."""


@dataclass(frozen=True)
class Precision:
    """One precision of operands."""

    name: str
    dtype: torch.dtype
    result: torch.dtype
    """Type of the results."""
    tolerance: float
    """Largest allowed relative Frobenius error, compared with float64 on the same operands.

    It lies between the error of correct arithmetic in this precision and that of the next coarser
    one: fp32 that is computed as tf32 exceeds it, and so does fp16 as bf16. For fp64, the reference
    is also in float64 but sums in a different order.
    """
    fp32_mode: Fp32Mode = "ieee"
    cpu_flags: tuple[str, ...] = ()
    """CPU flags, any of which means native support; empty if all CPUs have it."""


PRECISIONS = {
    precision.name: precision
    for precision in (
        Precision("fp64", torch.float64, torch.float64, 1e-12),
        Precision("fp32", torch.float32, torch.float32, 5e-5),
        Precision("tf32", torch.float32, torch.float32, 1.5e-3, fp32_mode="tf32"),
        Precision(
            "bf16",
            torch.bfloat16,
            torch.bfloat16,
            1e-2,
            cpu_flags=("avx512_bf16", "amx_bf16", "bf16", "sve_bf16"),
        ),
        Precision(
            "fp16",
            torch.float16,
            torch.float16,
            2e-3,
            cpu_flags=("avx512_fp16", "amx_fp16", "fp16_arith"),
        ),
        Precision(
            "fp8", torch.float8_e4m3fn, torch.bfloat16, 5e-2, cpu_flags=("avx10_2", "amx_fp8")
        ),
        Precision(
            "int8",
            torch.int8,
            torch.int32,
            1e-12,  # sums of integers are exact
            cpu_flags=("avx512_vnni", "avx_vnni", "amx_int8", "i8mm"),
        ),
    )
}


def precision_of(item: Item) -> Precision:
    """Return the precision in which ``item`` is measured."""
    return PRECISIONS[item.precision or ""]


@contextmanager
def fp32_arithmetic(mode: Fp32Mode) -> Iterator[None]:
    """Set how torch computes fp32 products and convolutions for the duration of a block."""
    backends: tuple[Any, ...] = (
        torch.backends.cuda.matmul,
        torch.backends.cudnn.conv,  # type: ignore[attr-defined]
        torch.backends.mkldnn.matmul,  # type: ignore[attr-defined]
        torch.backends.mkldnn.conv,  # type: ignore[attr-defined]
    )
    before = [backend.fp32_precision for backend in backends]
    try:
        for backend in backends:
            backend.fp32_precision = mode
        yield
    finally:
        for backend, old in zip(backends, before, strict=True):
            backend.fp32_precision = old


def operand(numbers: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return normally distributed numbers converted to ``dtype``; scaled to its range for int8."""
    if dtype is torch.int8:
        return (numbers * _INT8_SPREAD).clamp_(-127, 127).to(dtype)
    return numbers.to(dtype)


def multiply(precision: Precision, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> None:
    """Compute ``out = a @ b``; for fp8, with scales of one and full-precision accumulation."""
    if precision.dtype is torch.float8_e4m3fn:
        scaled_multiply(a, b, out, torch.ones((), device=a.device), fast=False)
    elif precision.dtype is torch.int8:
        torch._int_mm(a, b, out=out)
    else:
        torch.mm(a, b, out=out)


def scaled_multiply(
    a: torch.Tensor, b: torch.Tensor, out: torch.Tensor, one: torch.Tensor, *, fast: bool
) -> None:
    """Compute ``out = a @ b`` for fp8; with ``fast``, tensor cores accumulate with fewer bits."""
    torch._scaled_mm(
        a, b, scale_a=one, scale_b=one, out_dtype=out.dtype, use_fast_accum=fast, out=out
    )
