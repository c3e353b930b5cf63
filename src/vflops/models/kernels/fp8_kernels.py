"""Triton kernels around products in fp8: rounding by rows, with or without GELU, and transposition.

Each reads its input once and writes its output once. torch's compiler reads long rows twice, to
find their maximum and to round them, and torch's own transposition writes single bytes.
"""

# Triton code is not typed Python, and its constants are in capitals.
# mypy: disable-error-code="import-not-found,import-untyped,no-untyped-def,untyped-decorator"
# mypy: disable-error-code="no-untyped-call,no-any-return"
# ruff: noqa: N803

from __future__ import annotations

from typing import Literal

import torch
import triton
import triton.language as tl
from torch import Tensor

from vflops.models.kernels.launching import launch

MAX_COLUMNS = 1 << 15
"""The longest row that a program can have in its registers."""
_NUMBERS = 2048
"""Numbers of the rows that a program has at least."""
_TILE = 128

Transform = Literal["none", "gelu", "gelu gradient"]


def rounded_rows(
    x: Tensor, dtype: torch.dtype, min_peak: float, transform: Transform, slope: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Return f(x) in fp8, and the scale of each row (rows, 1), a power of two.

    f is the identity, GELU, or the gradient of GELU at x times ``slope``. A row whose maximum is
    below ``min_peak`` has the scale of one with this maximum.
    """
    rows, columns = x.shape
    result = torch.empty(rows, columns, dtype=dtype, device=x.device)
    scales = torch.empty(rows, 1, dtype=torch.float32, device=x.device)
    block = triton.next_power_of_2(columns)
    together = max(_NUMBERS // block, 1)
    launch(
        fp8_rows_kernel,
        (triton.cdiv(rows, together),),
        x,
        x if slope is None else slope,
        result,
        scales,
        rows,
        columns,
        torch.finfo(dtype).max,
        min_peak,
        TRANSFORM=transform,
        ROWS=together,
        BLOCK=block,
        # Few warps, each with many loads on the way: rows need few sums over warps.
        num_warps=2 if block <= 4096 else 8 if block <= 8192 else 16,
    )
    return result, scales


@triton.jit
def fp8_rows_kernel(
    source,
    slopes,
    result,
    scales,
    rows,
    columns,
    largest,
    min_peak,
    TRANSFORM: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Write a few rows of f(x), each divided by its scale."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, BLOCK)
    inside = (row < rows)[:, None] & (column < columns)[None, :]
    place = row[:, None].to(tl.int64) * columns + column[None, :]
    x = tl.load(source + place, inside, other=0.0).to(tl.float32)
    if TRANSFORM == "gelu":
        x = x * gelu_gate(x)
    elif TRANSFORM == "gelu gradient":
        slope = tl.load(slopes + place, inside, other=0.0).to(tl.float32)
        gate = gelu_gate(x)
        inner = 1.5957691216057308 + 0.21406443846 * x * x
        x = slope * (gate + x * gate * (1.0 - gate) * inner)
    peak = tl.maximum(tl.max(tl.abs(x), 1), min_peak)
    scale = tl.exp2(tl.ceil(tl.log2(peak / largest)))
    x = x * (1.0 / scale)[:, None]  # exact, as the scale is a power of two
    x = tl.minimum(tl.maximum(x, -largest), largest)
    tl.store(result + place, x.to(result.dtype.element_ty), inside)
    tl.store(scales + row, scale, row < rows)


@triton.jit
def gelu_gate(x):
    """Return GELU(x) / x: (1 + tanh(√(2/π) (x + 0.044715 x³))) / 2, as a sigmoid."""
    return tl.sigmoid(x * (1.5957691216057308 + 0.07135481282 * x * x))


def transposed_rows(source: Tensor, factors: Tensor | None) -> Tensor:
    """Return ``source`` (rows, columns) transposed, each row times its factor if there are any."""
    rows, columns = source.shape
    result = torch.empty(columns, rows, dtype=source.dtype, device=source.device)
    # Without factors the numbers are only moved.
    read, written = (source, result) if factors is not None else _as_bytes(source, result)
    launch(
        fp8_transpose_kernel,
        (triton.cdiv(rows, _TILE), triton.cdiv(columns, _TILE)),
        read,
        factors if factors is not None else read,
        written,
        rows,
        columns,
        SCALED=factors is not None,
        TILE=_TILE,
        num_warps=8,
    )
    return result


def _as_bytes(*tensors: Tensor) -> tuple[Tensor, ...]:
    return tuple(tensor.view(torch.uint8) for tensor in tensors)


@triton.jit
def fp8_transpose_kernel(
    source, factors, result, rows, columns, SCALED: tl.constexpr, TILE: tl.constexpr
):
    """Write one tile of the transposed matrix."""
    row = tl.program_id(0) * TILE + tl.arange(0, TILE)
    column = tl.program_id(1) * TILE + tl.arange(0, TILE)
    place = row[:, None].to(tl.int64) * columns + column[None, :]
    tile = tl.load(source + place, (row < rows)[:, None] & (column < columns)[None, :])
    if SCALED:
        factor = tl.load(factors + row, row < rows, other=0.0)
        tile = (tile.to(tl.float32) * factor[:, None]).to(tile.dtype)
    place = column[:, None].to(tl.int64) * rows + row[None, :]
    inside = (column < columns)[:, None] & (row < rows)[None, :]
    tl.store(result + place, tl.trans(tile), inside)
