"""RoIAlign: pool the features of a pyramid within each box to one size.

The operators are ``vflops::roi_align`` and, for its gradient, ``vflops::roi_align_backward``. Each
output is a weighted sum of a fixed number of pixels, so both are embedding bags: the forward
pass over the pixels of each output, the backward pass over the outputs of each pixel. Nothing
larger than the result is stored, and sums are in float32 in a fixed order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

from vflops.models.detection.boxes import area


def level_of(
    boxes: Tensor,
    lowest: int,
    highest: int,
    *,
    canonical_size: float = 224.0,
    canonical_level: int = 4,
) -> Tensor:
    """Return the level (…) to pool each box (…, 4) from, 0 for ``lowest``; larger boxes are higher.

    A box of ``canonical_size``² belongs to ``canonical_level``, one of twice the side to the next
    (equation 1 of the FPN paper).
    """
    level = canonical_level + torch.log2(area(boxes).sqrt() / canonical_size) + 1e-6
    level = level.floor().nan_to_num(nan=float(lowest)).clamp(lowest, highest)
    return level.to(torch.int64) - lowest


def roi_align(
    features: Sequence[Tensor],
    strides: Sequence[int],
    boxes: Tensor,
    levels: Tensor,
    *,
    size: int = 7,
    samples: int = 2,
) -> Tensor:
    """Return features (B, R, C, size, size) within each box (B, R, 4), from its level (B, R).

    ``features`` has one (B, C, H, W) per level, ``strides`` the image pixels per feature pixel.
    Each output is the mean of samples × samples bilinear samples, as in torchvision's ``roi_align``
    with ``aligned=False``. Memory is channels last: ``permute(0, 1, 3, 4, 2)`` is contiguous. Boxes
    get no gradient: proposals are constants for the head.
    """
    pooled: Tensor = torch.ops.vflops.roi_align.default(
        list(features), list(strides), boxes.detach(), levels, size, samples
    )
    return pooled


def roi_align_fallback(
    features: Sequence[Tensor],
    strides: Sequence[int],
    boxes: Tensor,
    levels: Tensor,
    size: int,
    samples: int,
) -> Tensor:
    """Compute ``roi_align`` on any device, without a custom kernel."""
    batch, channels = features[0].shape[:2]
    shapes = [(feature.shape[2], feature.shape[3]) for feature in features]
    rows = torch.cat([feature.permute(0, 2, 3, 1).flatten(1, 2) for feature in features], dim=1)
    rows = _as_float(rows.reshape(-1, channels))
    pixels, weights = _pixels(shapes, strides, boxes, levels, size, samples, rows.dtype)
    pooled = embedding_bag(pixels, rows, mode="sum", per_sample_weights=weights)
    pooled = pooled.to(features[0].dtype).view(batch, -1, size, size, channels)
    return pooled.permute(0, 1, 4, 2, 3)


def roi_align_backward_fallback(
    gradient: Tensor,
    boxes: Tensor,
    levels: Tensor,
    heights: Sequence[int],
    widths: Sequence[int],
    strides: Sequence[int],
    samples: int,
) -> list[Tensor]:
    """Return gradients (B, C, H, W) of the features, channels last, in the type of ``gradient``."""
    batch, _, channels, _, size = gradient.shape
    shapes = list(zip(heights, widths, strict=True))
    rows = _as_float(gradient.permute(0, 1, 3, 4, 2).reshape(-1, channels))
    pixels, weights = _pixels(shapes, strides, boxes, levels, size, samples, rows.dtype)
    pixels_per_output = pixels.shape[1]
    # Sorted by pixel, the outputs that use a pixel are a bag.
    pixels, order = pixels.flatten().sort(stable=True)
    lengths = [height * width for height, width in shapes]
    all_pixels = torch.arange(batch * sum(lengths), dtype=pixels.dtype, device=pixels.device)
    summed = embedding_bag(
        order.div(pixels_per_output, rounding_mode="trunc"),
        rows,
        torch.searchsorted(pixels, all_pixels),
        mode="sum",
        per_sample_weights=weights.flatten().index_select(0, order),
    )
    parts = summed.view(batch, -1, channels).split(lengths, dim=1)
    return [
        part.to(gradient.dtype, copy=True).unflatten(1, shape).permute(0, 3, 1, 2)
        for part, shape in zip(parts, shapes, strict=True)
    ]


def _pixels(
    shapes: Sequence[tuple[int, int]],
    strides: Sequence[int],
    boxes: Tensor,
    levels: Tensor,
    size: int,
    samples: int,
    dtype: torch.dtype,
) -> tuple[Tensor, Tensor]:
    """Return the pixels of each output, and their weights: both (B·R·size², (2·samples)²).

    Pixels are numbered over images, levels, rows and columns.
    """
    batch, regions = levels.shape
    lengths = [height * width for height, width in shapes]
    starts = [sum(lengths[:i]) for i in range(len(lengths))]
    level = levels.flatten()
    scale = _by_level([1 / stride for stride in strides], level, dtype)
    height = _by_level([height for height, _ in shapes], level, torch.int32)
    width = _by_level([width for _, width in shapes], level, torch.int32)
    first = _by_level(starts, level, torch.int32).view(batch, regions)
    image = torch.arange(batch, dtype=torch.int32, device=level.device) * sum(lengths)
    corners = (boxes.to(dtype) * scale.view(batch, regions, 1)).view(-1, 2, 2)
    last = torch.stack((width, height), dim=1) - 1
    positions, weights = _axis_samples(corners[:, 0], corners[:, 1], last, size, samples)
    x, y = positions.unbind(1)
    weight_x, weight_y = weights.unbind(1)
    y = y * width.view(-1, 1, 1) + (first + image.unsqueeze(1)).view(-1, 1, 1)
    weight_y = weight_y / samples**2
    return _product(y, x, torch.add), _product(weight_y, weight_x, torch.mul)


def _product(y: Tensor, x: Tensor, combine: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """Combine all pairs of the 2·samples of a bin in y and in x: (B·R·size², (2·samples)²)."""
    _, size, count = x.shape
    # Pairs are expanded first, so that loops over the last dimension are long enough to be fast.
    y = y.unsqueeze(3).expand(-1, -1, -1, count).reshape(-1, size, 1, count**2)
    x = x.unsqueeze(2).expand(-1, -1, count, -1).reshape(-1, 1, size, count**2)
    return combine(y, x).view(-1, count**2)


def _axis_samples(
    start: Tensor, end: Tensor, last: Tensor, size: int, samples: int
) -> tuple[Tensor, Tensor]:
    """Return the pixels and weights of each bin along x and y: (N, 2, size, 2·samples).

    A sample lies between two pixels. Up to one pixel outside the map it counts as being on the
    border, beyond that as 0. ``start``, ``end`` and ``last``, the last pixel, are (N, 2).
    """
    bin_number = torch.arange(size, dtype=start.dtype, device=start.device).view(-1, 1)
    sample_offset = torch.arange(samples, dtype=start.dtype, device=start.device) + 0.5
    length = ((end - start).clamp(min=1) / size).view(-1, 2, 1, 1)
    position = start.view(-1, 2, 1, 1) + bin_number * length + sample_offset * length / samples
    last = last.view(-1, 2, 1, 1)
    inside = (position >= -1) & (position <= last + 1)
    position = torch.minimum(position.clamp(min=0), last.to(position.dtype))
    low = position.floor()
    fraction = position - low
    low_pixel = low.to(torch.int32).clamp(min=0)  # NaN must not cause an invalid index
    pixels = torch.stack((low_pixel, torch.minimum(low_pixel + 1, last)), dim=-1)
    weights = torch.stack((1 - fraction, fraction), dim=-1) * inside.unsqueeze(-1)
    return pixels.flatten(3), weights.flatten(3)


def _by_level(values: Sequence[float], level: Tensor, dtype: torch.dtype) -> Tensor:
    # Selects the value of each level without a table, which would be copied from the host.
    chosen = torch.full(level.shape, values[0], dtype=dtype, device=level.device)
    for number, value in enumerate(values[1:], start=1):
        chosen = chosen.masked_fill(level == number, value)
    return chosen


def _as_float(rows: Tensor) -> Tensor:
    return rows if rows.dtype == torch.float64 else rows.float()


def _on_cuda(
    features: Sequence[Tensor],
    strides: Sequence[int],
    boxes: Tensor,
    levels: Tensor,
    size: int,
    samples: int,
) -> Tensor:
    if not _has_kernels(features[0].dtype, len(features), size):
        return roi_align_fallback(features, strides, boxes, levels, size, samples)
    from vflops.models.kernels import roi_align_kernels

    return roi_align_kernels.forward(features, strides, boxes, levels, size, samples)


def _backward_on_cuda(
    gradient: Tensor,
    boxes: Tensor,
    levels: Tensor,
    heights: Sequence[int],
    widths: Sequence[int],
    strides: Sequence[int],
    samples: int,
) -> list[Tensor]:
    regions, size = gradient.shape[1], gradient.shape[-1]
    if not _has_kernels(gradient.dtype, len(heights), size, regions):
        return roi_align_backward_fallback(
            gradient, boxes, levels, heights, widths, strides, samples
        )
    from vflops.models.kernels import roi_align_kernels

    return roi_align_kernels.backward(gradient, boxes, levels, heights, widths, strides, samples)


@cache
def _has_kernels(dtype: torch.dtype, levels: int, size: int, regions: int = 0) -> bool:
    if dtype == torch.float64 or find_spec("triton") is None:
        return False
    from vflops.models.kernels.roi_align_kernels import MAX_BINS, MAX_LEVELS, MAX_REGIONS

    return levels <= MAX_LEVELS and size <= MAX_BINS and regions <= MAX_REGIONS


def _fake(
    features: Sequence[Tensor],
    strides: Sequence[int],
    boxes: Tensor,
    levels: Tensor,
    size: int,
    samples: int,
) -> Tensor:
    batch, regions = levels.shape
    pooled = features[0].new_empty((batch, regions, size, size, features[0].shape[1]))
    return pooled.permute(0, 1, 4, 2, 3)


def _backward_fake(
    gradient: Tensor,
    boxes: Tensor,
    levels: Tensor,
    heights: Sequence[int],
    widths: Sequence[int],
    strides: Sequence[int],
    samples: int,
) -> list[Tensor]:
    batch, channels = gradient.shape[0], gradient.shape[2]
    return [
        gradient.new_empty((batch, height, width, channels)).permute(0, 3, 1, 2)
        for height, width in zip(heights, widths, strict=True)
    ]


def _save_for_backward(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    features, ctx.strides, boxes, levels, _, ctx.samples = inputs
    ctx.heights = [feature.shape[2] for feature in features]
    ctx.widths = [feature.shape[3] for feature in features]
    ctx.save_for_backward(boxes, levels)


def _backward(ctx: Any, gradient: Tensor) -> tuple[Any, ...]:
    boxes, levels = ctx.saved_tensors
    gradients = torch.ops.vflops.roi_align_backward.default(
        gradient, boxes, levels, ctx.heights, ctx.widths, ctx.strides, ctx.samples
    )
    return gradients, None, None, None, None, None


torch.library.define(
    "vflops::roi_align",
    "(Tensor[] features, int[] strides, Tensor boxes, Tensor levels, int size, int samples)"
    " -> Tensor",
)
torch.library.define(
    "vflops::roi_align_backward",
    "(Tensor gradient, Tensor boxes, Tensor levels, SymInt[] heights, SymInt[] widths,"
    " int[] strides, int samples) -> Tensor[]",
)
torch.library.impl("vflops::roi_align", "default", roi_align_fallback)
torch.library.impl("vflops::roi_align", "cuda", _on_cuda)
torch.library.impl("vflops::roi_align_backward", "default", roi_align_backward_fallback)
torch.library.impl("vflops::roi_align_backward", "cuda", _backward_on_cuda)
torch.library.register_fake("vflops::roi_align", _fake)
torch.library.register_fake("vflops::roi_align_backward", _backward_fake)
torch.library.register_autograd("vflops::roi_align", _backward, setup_context=_save_for_backward)
