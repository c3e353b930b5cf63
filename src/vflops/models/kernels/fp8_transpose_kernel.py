"""Transposes a matrix of 8-bit numbers, as products over the batch need it, as a Triton kernel.

Each element is read once and written once. torch's own transposition writes single bytes.
"""

# Triton code is not typed Python, and its constants are in capitals.
# mypy: disable-error-code="import-not-found,import-untyped,no-untyped-def,untyped-decorator"
# mypy: disable-error-code="no-untyped-call,no-any-return"
# ruff: noqa: N803

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from vflops.models.kernels.launching import launch

_TILE = 128


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
