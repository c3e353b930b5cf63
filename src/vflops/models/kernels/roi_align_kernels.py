"""RoIAlign over a pyramid as two Triton kernels, one launch each for all levels.

Features, their gradients and the result are in channels-last memory, so that the C numbers of a
pixel are adjacent. The forward pass reads 16 pixels per bin, mostly from the L1 cache: 6.6 GB for
16384 regions of 7×7 bins and 256 channels in bf16, compared with 1.6 GB of unavoidable memory
traffic (the whole pyramid of 32 images, and the result).

The backward pass gathers: a program owns a tile of pixels, finds the regions that reach it and adds
up their bins as a matrix product of bilinear weights and gradients. Every pixel is written once, in
its final type, with a fixed order of sums. Atomic additions would take 13 GB in float32, after
2.4 GB of zeros and before a cast of another 3.6 GB. Here 1.2 GB are written and 2 to 5 GB are read,
mostly from the L2 cache, since a region reaches about a dozen tiles. The products are 0.4 TFLOP,
half a millisecond at the peak of the tensor cores.
"""

# Triton code is not typed Python, and its constants are in capitals.
# mypy: disable-error-code="import-not-found,import-untyped,no-untyped-def,untyped-decorator"
# mypy: disable-error-code="no-untyped-call,no-any-return"
# ruff: noqa: N803

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

MAX_LEVELS = 5
MAX_BINS = 8
"""Bins per side: with more, the products of the backward pass do not fit a multiprocessor."""
MAX_REGIONS = 1 << 15
"""Regions per image in the backward pass, which lists those of a tile as 16-bit numbers."""


@dataclass(frozen=True)
class LaunchConfig:
    """The launch parameters of a kernel: channels and warps per program, pipeline stages."""

    channels: int
    warps: int
    stages: int = 1


SIDE = 8
"""Pixels per side of the tiles of the backward pass."""
FORWARD = LaunchConfig(channels=256, warps=4)
BACKWARD = LaunchConfig(channels=128, warps=4, stages=2)
BACKWARD_WIDE = LaunchConfig(channels=64, warps=4)
"""For float32, whose products need more registers."""


def forward(
    features: Sequence[Tensor],
    strides: Sequence[int],
    boxes: Tensor,
    levels: Tensor,
    size: int,
    samples: int,
    config: LaunchConfig = FORWARD,
) -> Tensor:
    """Return features (B, R, C, size, size) within each box (B, R, 4), from its level (B, R).

    ``permute(0, 1, 3, 4, 2)`` of the result is contiguous. Sums are in float32.
    """
    batch, regions = levels.shape
    channels = features[0].shape[1]
    _check(len(features), features[0].dtype, size)
    maps = [feature.contiguous(memory_format=torch.channels_last) for feature in features]
    out = maps[0].new_empty((batch, regions, size, size, channels))
    pooled = out.permute(0, 1, 4, 2, 3)
    if out.numel() == 0:
        return pooled
    width = min(config.channels, triton.next_power_of_2(channels))
    forward_kernel[(batch * regions, triton.cdiv(channels, width))](
        *_padded(maps),
        *_padded([feature.shape[2] for feature in maps]),
        *_padded([feature.shape[3] for feature in maps]),
        *_padded([1 / stride for stride in strides]),
        boxes.float().contiguous(),
        levels.contiguous(),
        out,
        regions,
        C=channels,
        SIZE=size,
        SAMPLES=samples,
        BINS=triton.next_power_of_2(size),
        CHANNELS=width,
        num_warps=config.warps,
    )
    return pooled


def backward(
    gradient: Tensor,
    boxes: Tensor,
    levels: Tensor,
    heights: Sequence[int],
    widths: Sequence[int],
    strides: Sequence[int],
    samples: int,
    config: LaunchConfig | None = None,
) -> list[Tensor]:
    """Return the gradients of the features, in the type of ``gradient``.

    Sums are in float32; the bilinear weights are rounded to the type of ``gradient``.
    """
    batch, regions, channels, _, size = gradient.shape
    _check(len(heights), gradient.dtype, size)
    if regions > MAX_REGIONS:
        raise ValueError(
            f"the RoIAlign kernels support up to {MAX_REGIONS} regions per image in the backward "
            f"pass; given {regions}: use the fallback"
        )
    config = config or (BACKWARD_WIDE if gradient.dtype == torch.float32 else BACKWARD)
    rows = gradient.permute(0, 1, 3, 4, 2).contiguous()
    gradients = [
        gradient.new_empty((batch, height, width, channels))
        for height, width in zip(heights, widths, strict=True)
    ]
    if regions == 0:
        return [part.zero_().permute(0, 3, 1, 2) for part in gradients]
    # Coarse levels come first: their tiles have the most regions.
    firsts: list[int] = []
    tiles = 0
    for height, width in zip(reversed(heights), reversed(widths), strict=True):
        firsts.insert(0, tiles)
        tiles += batch * triton.cdiv(height, SIDE) * triton.cdiv(width, SIDE)
    width = max(16, min(config.channels, triton.next_power_of_2(channels)))  # a product needs 16
    columns = triton.cdiv(channels, width)
    reaching = torch.empty((tiles, columns, regions), dtype=torch.int16, device=gradient.device)
    if tiles * columns:
        backward_kernel[(tiles, columns)](
            rows,
            boxes.float().contiguous(),
            levels.contiguous(),
            reaching,
            *_padded(gradients),
            *_padded(list(heights)),
            *_padded(list(widths)),
            *_padded([1 / stride for stride in strides]),
            *_padded(firsts, 0),
            regions,
            C=channels,
            SIZE=size,
            SAMPLES=samples,
            BINS=max(4, triton.next_power_of_2(size)),
            REGIONS=triton.next_power_of_2(regions),
            CHANNELS=width,
            SIDE=SIDE,
            STAGES=config.stages,
            num_warps=config.warps,
        )
    return [part.permute(0, 3, 1, 2) for part in gradients]


def _padded(values: Sequence[Any], filling: Any = None) -> list[Any]:
    missing = MAX_LEVELS - len(values)
    return [*values, *[values[0] if filling is None else filling] * missing]


def _check(levels: int, dtype: torch.dtype, size: int) -> None:
    if levels > MAX_LEVELS or size > MAX_BINS or dtype == torch.float64:
        raise ValueError(
            f"the RoIAlign kernels support up to {MAX_LEVELS} levels, {MAX_BINS} bins per side "
            f"and not float64; given {levels} levels, {size} bins and {dtype}: use the fallback"
        )


@triton.jit
def pick(level, a, b, c, d, e):
    """Return the argument that belongs to ``level``, from 0 for ``a`` to 4 for ``e``."""
    chosen = tl.where(level == 1, b, a)
    chosen = tl.where(level == 2, c, chosen)
    chosen = tl.where(level == 3, d, chosen)
    return tl.where(level == 4, e, chosen)


@triton.jit
def positions(start, length, bins, sample: tl.constexpr, limit, SAMPLES: tl.constexpr):
    """Return the position of a sample of each bin, clamped to the map, and whether it counts.

    A sample up to one pixel outside the map counts as on its border. NaN becomes 0 and does not
    count.
    """
    at = start + bins * length + (sample + 0.5) * length / SAMPLES
    counts = (at >= -1.0) & (at <= limit)
    at = tl.where(at == at, at, 0.0)
    return tl.minimum(tl.maximum(at, 0.0), limit - 1.0), counts


@triton.jit
def forward_kernel(
    map0,
    map1,
    map2,
    map3,
    map4,
    height0,
    height1,
    height2,
    height3,
    height4,
    width0,
    width1,
    width2,
    width3,
    width4,
    scale0,
    scale1,
    scale2,
    scale3,
    scale4,
    boxes,
    levels,
    out,
    regions,
    C: tl.constexpr,
    SIZE: tl.constexpr,
    SAMPLES: tl.constexpr,
    BINS: tl.constexpr,
    CHANNELS: tl.constexpr,
):
    """Compute ``out`` ``[region, SIZE, SIZE, C]`` of one region and a block of channels."""
    region = tl.program_id(0)
    level = tl.load(levels + region).to(tl.int32)
    features = pick(level, map0, map1, map2, map3, map4)
    height = pick(level, height0, height1, height2, height3, height4)
    width = pick(level, width0, width1, width2, width3, width4)
    scale = pick(level, scale0, scale1, scale2, scale3, scale4)
    x1 = tl.load(boxes + region * 4) * scale
    y1 = tl.load(boxes + region * 4 + 1) * scale
    x2 = tl.load(boxes + region * 4 + 2) * scale
    y2 = tl.load(boxes + region * 4 + 3) * scale
    bin_width = tl.maximum(x2 - x1, 1.0) / SIZE
    bin_height = tl.maximum(y2 - y1, 1.0) / SIZE
    channel = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    real = channel < C
    column = tl.arange(0, BINS)
    features += (region // regions).to(tl.int64) * height * width * C
    out += region.to(tl.int64) * (SIZE * SIZE * C)
    for row in range(SIZE):
        total = tl.zeros([BINS, CHANNELS], tl.float32)
        for i in tl.static_range(SAMPLES):
            y, counts_y = positions(y1, bin_height, row, i, height, SAMPLES)
            top = y.to(tl.int32)
            bottom = tl.minimum(top + 1, height - 1)
            low = y - top
            for j in tl.static_range(SAMPLES):
                x, counts_x = positions(x1, bin_width, column, j, width, SAMPLES)
                left = x.to(tl.int32)
                right = tl.minimum(left + 1, width - 1)
                far = x - left
                counts = counts_x & (column < tl.where(counts_y, SIZE, 0))
                mask = counts[:, None] & real[None, :]
                a = tl.load(
                    features + ((top * width + left) * C)[:, None] + channel[None, :],
                    mask=mask,
                    other=0.0,
                )
                b = tl.load(
                    features + ((top * width + right) * C)[:, None] + channel[None, :],
                    mask=mask,
                    other=0.0,
                )
                c = tl.load(
                    features + ((bottom * width + left) * C)[:, None] + channel[None, :],
                    mask=mask,
                    other=0.0,
                )
                d = tl.load(
                    features + ((bottom * width + right) * C)[:, None] + channel[None, :],
                    mask=mask,
                    other=0.0,
                )
                total += ((1.0 - low) * (1.0 - far))[:, None] * a.to(tl.float32)
                total += ((1.0 - low) * far)[:, None] * b.to(tl.float32)
                total += (low * (1.0 - far))[:, None] * c.to(tl.float32)
                total += (low * far)[:, None] * d.to(tl.float32)
        mean = total * (1.0 / (SAMPLES * SAMPLES))
        at = ((row * SIZE + column) * C)[:, None] + channel[None, :]
        tl.store(
            out + at,
            mean.to(out.dtype.element_ty),
            mask=(column < SIZE)[:, None] & real[None, :],
        )


@triton.jit
def reach(start, length, limit, first, SIZE: tl.constexpr, SAMPLES: tl.constexpr, SIDE):
    """Whether the samples of SIZE bins from ``start`` on touch SIDE pixels from ``first`` on."""
    early, _ = positions(start, length, 0, 0, limit, SAMPLES)
    late, _ = positions(start, length, SIZE - 1, SAMPLES - 1, limit, SAMPLES)
    return (late > first - 1) & (early < first + SIDE)


@triton.jit
def weights(start, length, limit, pixels, bins, SAMPLES: tl.constexpr):
    """Return the weight of each pixel in each bin, summed over samples: ``[pixels, bins]``.

    Bilinear weights are 1 − distance if that is positive; a sample that does not count is placed
    far from all pixels.
    """
    total = tl.zeros([pixels.shape[0], bins.shape[0]], tl.float32)
    for sample in tl.static_range(SAMPLES):
        at, counts = positions(start, length, bins, sample, limit, SAMPLES)
        at = tl.where(counts, at, -9.0)
        distance = tl.abs(at[None, :] - pixels.to(tl.float32)[:, None])
        total += tl.maximum(1.0 - distance, 0.0)
    return total


@triton.jit
def backward_kernel(
    gradient,
    boxes,
    levels,
    found,
    map0,
    map1,
    map2,
    map3,
    map4,
    height0,
    height1,
    height2,
    height3,
    height4,
    width0,
    width1,
    width2,
    width3,
    width4,
    scale0,
    scale1,
    scale2,
    scale3,
    scale4,
    first0,
    first1,
    first2,
    first3,
    first4,
    regions,
    C: tl.constexpr,
    SIZE: tl.constexpr,
    SAMPLES: tl.constexpr,
    BINS: tl.constexpr,
    REGIONS: tl.constexpr,
    CHANNELS: tl.constexpr,
    SIDE: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Compute the gradient of SIDE × SIDE pixels of one level and image, and a block of channels.

    Tiles are numbered from the last level on; ``first0`` to ``first4`` are the first of each level.
    ``found`` ``[tiles, columns, regions]`` receives the regions that reach the tile.
    """
    tile = tl.program_id(0)
    level = (
        (tile < first0).to(tl.int32)
        + (tile < first1).to(tl.int32)
        + (tile < first2).to(tl.int32)
        + (tile < first3).to(tl.int32)
    )
    out = pick(level, map0, map1, map2, map3, map4)
    height = pick(level, height0, height1, height2, height3, height4)
    width = pick(level, width0, width1, width2, width3, width4)
    scale = pick(level, scale0, scale1, scale2, scale3, scale4)
    place = tile - pick(level, first0, first1, first2, first3, first4)
    across = tl.cdiv(width, SIDE)
    down = tl.cdiv(height, SIDE)
    left = place % across * SIDE
    top = place // across % down * SIDE
    image = place // across // down

    region = tl.arange(0, REGIONS)
    exists = region < regions
    boxes += image * regions * 4
    x1 = tl.load(boxes + region * 4, mask=exists, other=0.0) * scale
    y1 = tl.load(boxes + region * 4 + 1, mask=exists, other=0.0) * scale
    x2 = tl.load(boxes + region * 4 + 2, mask=exists, other=0.0) * scale
    y2 = tl.load(boxes + region * 4 + 3, mask=exists, other=0.0) * scale
    own = tl.load(levels + image * regions + region, mask=exists, other=-1).to(tl.int32) == level
    bin_width = tl.maximum(x2 - x1, 1.0) / SIZE
    bin_height = tl.maximum(y2 - y1, 1.0) / SIZE
    own = own & reach(x1, bin_width, width, left, SIZE, SAMPLES, SIDE)
    own = own & reach(y1, bin_height, height, top, SIZE, SAMPLES, SIDE)
    found += (tile * tl.num_programs(1) + tl.program_id(1)).to(tl.int64) * regions
    number = tl.cumsum(own.to(tl.int32), axis=0)
    tl.store(found + number - 1, region.to(tl.int16), mask=own)
    count = tl.sum(own.to(tl.int32), axis=0)
    tl.debug_barrier()  # other threads read these next

    channel = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    real = channel < C
    side = tl.arange(0, SIDE)
    bins = tl.arange(0, BINS)
    both = tl.arange(0, BINS * BINS)
    row = both // BINS
    column = both % BINS
    used = (row < SIZE) & (column < SIZE)
    bin_at = ((row * SIZE + column) * C)[:, None] + channel[None, :]
    gradient += image.to(tl.int64) * regions * (SIZE * SIZE * C)
    total = tl.zeros([SIDE * SIDE, CHANNELS], tl.float32)
    for number in tl.range(0, count, num_stages=STAGES):
        which = tl.load(found + number).to(tl.int32)
        u1 = tl.load(boxes + which * 4) * scale
        v1 = tl.load(boxes + which * 4 + 1) * scale
        u2 = tl.load(boxes + which * 4 + 2) * scale
        v2 = tl.load(boxes + which * 4 + 3) * scale
        across_bin = tl.maximum(u2 - u1, 1.0) / SIZE
        down_bin = tl.maximum(v2 - v1, 1.0) / SIZE
        # Only the bins that reach the tile are read.
        near = used & reach(u1 + column * across_bin, across_bin, width, left, 1, SAMPLES, SIDE)
        near = near & reach(v1 + row * down_bin, down_bin, height, top, 1, SAMPLES, SIDE)
        values = tl.load(
            gradient + which.to(tl.int64) * (SIZE * SIZE * C) + bin_at,
            mask=near[:, None] & real[None, :],
            other=0.0,
        )
        of_x = weights(u1, across_bin, width, left + side, bins, SAMPLES)
        of_y = weights(v1, down_bin, height, top + side, bins, SAMPLES)
        weight = of_y[:, None, :, None] * of_x[None, :, None, :]
        weight = tl.reshape(weight, [SIDE * SIDE, BINS * BINS]).to(values.dtype)
        total = tl.dot(weight, values, total, input_precision="tf32x3")
    pixel = tl.arange(0, SIDE * SIDE)
    y = top + pixel // SIDE
    x = left + pixel % SIDE
    inside = (y < height) & (x < width)
    out += image.to(tl.int64) * height * width * C
    mean = total * (1.0 / (SAMPLES * SAMPLES))
    tl.store(
        out + ((y * width + x) * C)[:, None] + channel[None, :],
        mean.to(out.dtype.element_ty),
        mask=inside[:, None] & real[None, :],
    )
