"""Greedy non-maximum suppression as one Triton kernel: one program per row of boxes.

A program processes its boxes in blocks. Each block is compared with the boxes kept so far, which
are packed in memory, so that only kept boxes cost time. The rest is resolved within the block in
rounds over bit masks, usually few. There is no matrix of overlaps in memory, only one launch, and
nothing is read back. A pair costs about 13 instructions: 160 rows of 2000 boxes, all kept, are
3.2e8 pairs, an estimated 0.2 to 0.3 ms on 132 multiprocessors, 28 of which have two rows.
"""

# Triton code is not typed Python, and its constants are in capitals.
# mypy: disable-error-code="import-not-found,import-untyped,no-untyped-def,untyped-decorator"
# mypy: disable-error-code="no-untyped-call,no-any-return"
# ruff: noqa: N803

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor


@dataclass(frozen=True)
class LaunchConfig:
    """The launch parameters of the kernel."""

    block: int = 64
    """Boxes resolved together, at most 64: one bit each of an integer."""
    chunk: int = 64
    """Number of kept boxes that a block is compared with at a time."""
    warps: int = 16


DEFAULT = LaunchConfig()


def suppress(
    boxes: Tensor, valid: Tensor, threshold: float, config: LaunchConfig = DEFAULT
) -> Tensor:
    """Return which boxes to keep (B, N): valid ones that no earlier kept box removes.

    ``boxes`` (B, N, 4) float32 are sorted by descending score. A box removes a later one if their
    IoU, rounded to float32, is above ``threshold``, which is at least 0 and rounded likewise.
    """
    rows, count = valid.shape
    keep = torch.empty((rows, count), dtype=torch.bool, device=boxes.device)
    if keep.numel() == 0:
        return keep
    kept = torch.empty((rows, 5, count), dtype=torch.float32, device=boxes.device)
    limit, half = bounds(threshold)
    suppress_kernel[(rows,)](
        boxes.float().contiguous(),
        valid.contiguous().view(torch.uint8),
        kept,
        keep.view(torch.uint8),
        count,
        limit,
        half,
        BLOCK=config.block,
        CHUNK=config.chunk,
        num_warps=config.warps,
        enable_fp_fusion=False,  # round each step as a plain IoU does
    )
    return keep


def bounds(threshold: float) -> tuple[float, float]:
    """Return the threshold t in float32, and half the distance h from it to the next float32.

    For floats a and b, a / b rounded to float32 is above t exactly if a > (t + h)·b: no quotient of
    two floats equals t + h, which needs 25 binary digits. ``a − t·b`` has few digits if it is near
    h·b, so two fused multiply-adds decide it, at a fraction of the cost of a division.
    """
    limit = float(np.float32(threshold))
    if limit == 0.0:
        return 0.0, 0.0
    return limit, math.ldexp(1.0, math.frexp(limit)[1] - 25)


@triton.jit
def excess(x1, y1, x2, y2, area, u1, v1, u2, v2, other, limit, half):
    """Return a value above 0 exactly if the IoU of two boxes, in float32, is above the limit.

    One side of the intersection may stay negative: then the result is not above 0 either.
    """
    width = tl.maximum(tl.minimum(x2, u2) - tl.maximum(x1, u1), 0.0)
    shared = width * (tl.minimum(y2, v2) - tl.maximum(y1, v1))
    union = area + other - shared
    return tl.fma(-half, union, tl.fma(-limit, union, shared))


@triton.jit
def suppress_kernel(
    boxes,
    valid,
    kept,
    keep,
    count,
    limit,
    half,
    BLOCK: tl.constexpr,
    CHUNK: tl.constexpr,
):
    """Compute ``keep`` of one row; ``kept`` ``[rows, 5, count]`` has corners and areas of boxes."""
    row = tl.program_id(0).to(tl.int64)
    boxes += row * count * 4
    valid += row * count
    keep += row * count
    kept += row * count * 5
    lane = tl.arange(0, BLOCK)
    bit = tl.full([BLOCK], 1, tl.int64) << lane.to(tl.int64)
    found = 0
    for start in range(0, count, BLOCK):
        i = start + lane
        inside = i < count
        alive = tl.load(valid + i, mask=inside, other=0) != 0
        if tl.max(alive.to(tl.int32), axis=0) > 0:
            x1 = tl.load(boxes + i * 4, mask=inside, other=0.0)
            y1 = tl.load(boxes + i * 4 + 1, mask=inside, other=0.0)
            x2 = tl.load(boxes + i * 4 + 2, mask=inside, other=0.0)
            y2 = tl.load(boxes + i * 4 + 3, mask=inside, other=0.0)
            # An inverted box is empty; one with NaN has an area of NaN and removes nothing.
            area = tl.where((x2 < x1) | (y2 < y1), 0.0, (x2 - x1) * (y2 - y1))
            # A lane has several boxes of the block and compares them with one of the others. The
            # block itself comes first, so that its second copy needs no registers in the loop.
            within = excess(
                x1[:, None],
                y1[:, None],
                x2[:, None],
                y2[:, None],
                area[:, None],
                x1[None, :],
                y1[None, :],
                x2[None, :],
                y2[None, :],
                area[None, :],
                limit,
                half,
            )
            removed = (within > 0) & (lane[None, :] < lane[:, None])
            removers = tl.sum(tl.where(removed, bit[None, :], 0), axis=1)
            worst = tl.zeros([BLOCK, CHUNK], tl.float32)
            for first in tl.range(0, found, CHUNK, num_stages=1):
                j = first + tl.arange(0, CHUNK)
                there = j < found
                u1 = tl.load(kept + j, mask=there, other=0.0)
                v1 = tl.load(kept + count + j, mask=there, other=0.0)
                u2 = tl.load(kept + 2 * count + j, mask=there, other=0.0)
                v2 = tl.load(kept + 3 * count + j, mask=there, other=0.0)
                size = tl.load(kept + 4 * count + j, mask=there, other=0.0)
                over = excess(
                    x1[:, None],
                    y1[:, None],
                    x2[:, None],
                    y2[:, None],
                    area[:, None],
                    u1[None, :],
                    v1[None, :],
                    u2[None, :],
                    v2[None, :],
                    size[None, :],
                    limit,
                    half,
                )
                worst = tl.maximum(worst, over)
            alive = alive & (tl.max(worst, axis=1) <= 0)
            # After k rounds the first k + 1 boxes are final. When a round changes nothing, all
            # are.
            stays = alive
            word = tl.sum(tl.where(stays, bit, 0), axis=0)
            before = word ^ 1
            while word != before:
                before = word
                stays = alive & ((removers & word) == 0)
                word = tl.sum(tl.where(stays, bit, 0), axis=0)
            number = tl.cumsum(stays.to(tl.int32), axis=0)
            at = kept + found + number - 1
            tl.store(at, x1, mask=stays)
            tl.store(at + count, y1, mask=stays)
            tl.store(at + 2 * count, x2, mask=stays)
            tl.store(at + 3 * count, y2, mask=stays)
            tl.store(at + 4 * count, area, mask=stays)
            found += tl.sum(stays.to(tl.int32), axis=0)
            tl.debug_barrier()  # other threads read these next
            alive = stays
        tl.store(keep + i, alive.to(tl.uint8), mask=inside)
