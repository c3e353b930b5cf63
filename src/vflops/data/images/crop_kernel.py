"""Bilinear sampling of packed images as one Triton kernel, which reads each pixel once.

``crop`` without it takes about forty passes over the batch. ``torch.compile`` fuses them too, but
importing the compiler takes longer than the first epochs of a short training.
"""

# Triton code is not typed Python, and its constants are in capitals.
# mypy: disable-error-code="import-not-found,import-untyped,no-untyped-def,untyped-decorator"
# mypy: disable-error-code="no-untyped-call,no-any-return"
# ruff: noqa: N803

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

_TILE = 512
"""Pixels of an image that one program computes."""


def sample(
    pixels: Tensor,
    offsets: Tensor,
    widths: Tensor,
    y: Tensor,
    x: Tensor,
    last_y: Tensor,
    last_x: Tensor,
    factor: Sequence[float],
    bias: Sequence[float],
    dtype: torch.dtype,
) -> Tensor:
    """Return ``factor`` × level + ``bias`` at rows ``y`` and columns ``x`` of each image.

    The arguments are those of ``crop._blend``; the result is [images, rows, columns, 3].
    """
    images, rows = y.shape
    columns = x.shape[1]
    out = torch.empty((images, rows, columns, 3), dtype=dtype, device=pixels.device)
    if out.numel() == 0:
        return out
    sample_kernel[(images, triton.cdiv(rows * columns, _TILE))](
        pixels,
        offsets.contiguous(),
        widths.contiguous(),
        y.contiguous(),
        x.contiguous(),
        last_y.contiguous(),
        last_x.contiguous(),
        out,
        rows,
        columns,
        *factor,
        *bias,
        TILE=_TILE,
    )
    return out


@triton.jit
def sample_kernel(
    pixels,
    offsets,
    widths,
    y,
    x,
    last_y,
    last_x,
    out,
    rows,
    columns,
    factor_0,
    factor_1,
    factor_2,
    bias_0,
    bias_1,
    bias_2,
    TILE: tl.constexpr,
):
    """Sample one tile of pixels of one image."""
    image = tl.program_id(0).to(tl.int64)
    place = tl.program_id(1) * TILE + tl.arange(0, TILE)
    inside = place < rows * columns
    row, column = place // columns, place % columns
    at_y = tl.load(y + image * rows + row, mask=inside, other=0.0)
    at_x = tl.load(x + image * columns + column, mask=inside, other=0.0)
    top, left = tl.floor(at_y), tl.floor(at_x)
    down, right = at_y - top, at_x - left
    below = tl.minimum(top + 1, tl.load(last_y + image)).to(tl.int64)
    beyond = tl.minimum(left + 1, tl.load(last_x + image)).to(tl.int64)
    width = tl.load(widths + image).to(tl.int64)
    first = pixels + tl.load(offsets + image).to(tl.int64)
    upper = first + top.to(tl.int64) * width * 3
    lower = first + below * width * 3
    near, far = left.to(tl.int64) * 3, beyond * 3
    target = out + (image * rows * columns + place) * 3
    for channel in tl.static_range(3):
        a = tl.load(upper + near + channel, mask=inside, other=0).to(tl.float32)
        b = tl.load(upper + far + channel, mask=inside, other=0).to(tl.float32)
        c = tl.load(lower + near + channel, mask=inside, other=0).to(tl.float32)
        d = tl.load(lower + far + channel, mask=inside, other=0).to(tl.float32)
        above = a + (b - a) * right
        under = c + (d - c) * right
        level = above + (under - above) * down
        if channel == 0:
            value = level * factor_0 + bias_0
        elif channel == 1:
            value = level * factor_1 + bias_1
        else:
            value = level * factor_2 + bias_2
        tl.store(target + channel, value.to(out.dtype.element_ty), mask=inside)
