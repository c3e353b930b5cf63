"""Crops of packed images on the device: random, centred and shifted.

A batch is a flat tensor of 8-bit RGB images of any sizes back to back, with padding at the end.
Random numbers are an input, drawn by the host for each sample. So every function here has static
shapes, never waits for the device, and compiles to one graph. The result is normalised,
[images, 3, size, size], channels last in memory.
"""

from __future__ import annotations

import math
from functools import cache
from importlib.util import find_spec
from typing import Literal

import torch
from torch import Tensor

MEAN = (0.485, 0.456, 0.406)  # of ImageNet's channels, as every published ResNet uses them
DEVIATION = (0.229, 0.224, 0.225)
_FACTORS = [1 / (255 * d) for d in DEVIATION]
_BIASES = [-m / d for m, d in zip(MEAN, DEVIATION, strict=True)]
CROP_TRIES = 10  # torchvision's number
CROP_DRAWS = 2 * CROP_TRIES + 3  # an area and an aspect per try, then top, left and flip
SHIFT_DRAWS = 3  # down, right and flip

Padding = Literal["zero", "edge"]


def random_resized_crop(
    pixels: Tensor,
    offsets: Tensor,
    heights: Tensor,
    widths: Tensor,
    draws: Tensor,
    size: int,
    area: tuple[float, float] = (0.05, 1.0),
    aspect: tuple[float, float] = (3 / 4, 4 / 3),
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    """Resize a random part of each image to ``size`` × ``size`` (bilinear); flip half of them.

    ``draws`` is [images, at least CROP_DRAWS] in [0, 1). As in torchvision, the first of ten tries
    that fits is used, else the largest centred part with an allowed aspect.
    """
    top, left, tall, wide = crop_boxes(heights, widths, draws, area, aspect)
    step = torch.arange(size, device=pixels.device)
    mirrored = draws[:, CROP_DRAWS - 1 : CROP_DRAWS] < 0.5
    column = torch.where(mirrored, size - 1 - step, step)
    y = _source_coordinates(step, tall[:, None], size) + top[:, None]
    x = _source_coordinates(column, wide[:, None], size) + left[:, None]
    last_y, last_x = top + tall - 1, left + wide - 1
    return _sample(pixels, offsets, widths, y, x, last_y, last_x, dtype)


def crop_boxes(
    heights: Tensor,
    widths: Tensor,
    draws: Tensor,
    area: tuple[float, float],
    aspect: tuple[float, float],
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return top, left, height and width of each random part, in whole pixels (float32)."""
    height, width = heights.float()[:, None], widths.float()[:, None]
    target_area = height * width * (draws[:, :CROP_TRIES] * (area[1] - area[0]) + area[0])
    low, high = math.log(aspect[0]), math.log(aspect[1])
    ratio = torch.exp(draws[:, CROP_TRIES : 2 * CROP_TRIES] * (high - low) + low)
    wide = torch.round(torch.sqrt(target_area * ratio))
    tall = torch.round(torch.sqrt(target_area / ratio))
    fits = (wide >= 1) & (wide <= width) & (tall >= 1) & (tall <= height)

    order = torch.arange(CROP_TRIES, device=draws.device)
    first = torch.where(fits, order, CROP_TRIES).amin(1, keepdim=True)
    fitted, first = first < CROP_TRIES, first.clamp(max=CROP_TRIES - 1)
    max_wide = torch.minimum(width, torch.round(height * aspect[1]))
    max_tall = torch.minimum(height, torch.round(width / aspect[0]))
    wide = torch.where(fitted, wide.gather(1, first), max_wide)
    tall = torch.where(fitted, tall.gather(1, first), max_tall)

    position = draws[:, 2 * CROP_TRIES : 2 * CROP_TRIES + 2]
    top = torch.where(
        fitted, _random_integer(position[:, :1], height - tall), _centred_start(height, tall)
    )
    left = torch.where(
        fitted, _random_integer(position[:, 1:], width - wide), _centred_start(width, wide)
    )
    return top[:, 0], left[:, 0], tall[:, 0], wide[:, 0]


def centre_crop(
    pixels: Tensor,
    offsets: Tensor,
    heights: Tensor,
    widths: Tensor,
    size: int,
    resize: int,
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    """Return the centre ``size`` × ``size`` of each image, resized to a short side of ``resize``.

    Bilinear without a low-pass filter: exact if the short side already is ``resize``, as in packed
    images, and accurate enough for reductions by a factor of up to about 1.2.
    """
    if size > resize:
        raise ValueError(f"size {size} is larger than resize {resize}: there is nothing to crop")
    short = torch.minimum(heights, widths)
    step = torch.arange(size, device=pixels.device)

    def coordinates(sides: Tensor) -> Tensor:
        resized = torch.div(sides.long() * resize, short, rounding_mode="floor")
        start = torch.round((resized - size).float() / 2)
        source = (start[:, None] + step + 0.5) * (sides.float() / resized)[:, None] - 0.5
        return source.clamp(min=0.0)

    y, x = coordinates(heights), coordinates(widths)
    last_y, last_x = heights.float() - 1, widths.float() - 1
    return _sample(pixels, offsets, widths, y, x, last_y, last_x, dtype)


def shift(
    pixels: Tensor,
    offsets: Tensor,
    heights: Tensor,
    widths: Tensor,
    draws: Tensor,
    size: int,
    max_shift: int,
    padding: Padding = "zero",
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    """Return the centre of each image shifted by up to ``max_shift`` pixels; flip half of them.

    ``draws`` is [images, at least SHIFT_DRAWS] in [0, 1). Pixels from outside are black or repeat
    the nearest edge. Meant for small images: one gather, nothing is resized.
    """
    step = torch.arange(size, device=pixels.device)
    shifts = (draws[:, :2] * (2 * max_shift + 1)).long().clamp(max=2 * max_shift) - max_shift
    column = torch.where(draws[:, 2:3] < 0.5, size - 1 - step, step)
    height, width = heights.long()[:, None], widths.long()[:, None]
    y = step + shifts[:, :1] + torch.div(height - size, 2, rounding_mode="floor")
    x = column + shifts[:, 1:2] + torch.div(width - size, 2, rounding_mode="floor")
    inside_y, inside_x = (y >= 0) & (y < height), (x >= 0) & (x < width)
    y, x = y.clamp(min=0).minimum(height - 1), x.clamp(min=0).minimum(width - 1)
    out = _gather(pixels, offsets, y, x, width)
    if padding == "zero":
        out = out * (inside_y[:, :, None] & inside_x[:, None, :])[..., None]
    return _normalised(out, dtype)


def _source_coordinates(step: Tensor, side: Tensor, size: int) -> Tensor:
    """Return the source coordinate of each new pixel's centre (``align_corners=False``)."""
    return ((step + 0.5) * (side / size) - 0.5).clamp(min=0.0)


def _random_integer(draw: Tensor, highest: Tensor) -> Tensor:
    """Return a uniformly distributed integer from 0 to ``highest``."""
    return torch.floor(draw * (highest + 1)).minimum(highest)


def _centred_start(outer: Tensor, inner: Tensor) -> Tensor:
    return torch.floor((outer - inner) / 2)


def _sample(
    pixels: Tensor,
    offsets: Tensor,
    widths: Tensor,
    y: Tensor,
    x: Tensor,
    last_y: Tensor,
    last_x: Tensor,
    dtype: torch.dtype,
) -> Tensor:
    """Sample each image at rows ``y`` and columns ``x``, normalised."""
    where = (pixels, offsets, widths, y, x, last_y, last_x)
    if not _has_kernel(pixels.device):
        return _normalised(_blend(*where), dtype)
    from vflops.data.images import crop_kernel

    return crop_kernel.sample(*where, _FACTORS, _BIASES, dtype).permute(0, 3, 1, 2)


@cache
def _has_kernel(device: torch.device) -> bool:
    return device.type == "cuda" and find_spec("triton") is not None


def _blend(
    pixels: Tensor,
    offsets: Tensor,
    widths: Tensor,
    y: Tensor,
    x: Tensor,
    last_y: Tensor,
    last_x: Tensor,
) -> Tensor:
    """Sample each image at rows ``y`` and columns ``x``, bilinear, [images, rows, columns, 3].

    Nothing beyond ``last_y`` and ``last_x`` is read, so that no neighbouring pixel leaks in.
    """
    y0, x0 = torch.floor(y), torch.floor(x)
    down, right = (y - y0)[:, :, None, None], (x - x0)[:, None, :, None]
    y1, x1 = (y0 + 1).minimum(last_y[:, None]).long(), (x0 + 1).minimum(last_x[:, None]).long()
    y0, x0 = y0.long(), x0.long()
    width = widths.long()[:, None]
    rows = []
    for row in (y0, y1):
        near = _gather(pixels, offsets, row, x0, width).float()
        far = _gather(pixels, offsets, row, x1, width).float()
        rows.append(near + (far - near) * right)
    return rows[0] + (rows[1] - rows[0]) * down


def _gather(pixels: Tensor, offsets: Tensor, y: Tensor, x: Tensor, width: Tensor) -> Tensor:
    """Return the pixels at rows × columns of each image, three bytes at a time."""
    table = pixels[: pixels.shape[0] // 3 * 3].view(-1, 3)  # every image is a multiple of 3 bytes
    first = torch.div(offsets.long(), 3, rounding_mode="floor")[:, None] + y * width
    index = first[:, :, None] + x[:, None, :]
    return table.index_select(0, index.view(-1)).view(*index.shape, 3)  # 3 × faster than [index]


def _normalised(image: Tensor, dtype: torch.dtype) -> Tensor:
    """Normalise levels from 0 to 255 for the network, [images, 3, rows, columns]."""
    factor, bias = _constants(_FACTORS, image.device), _constants(_BIASES, image.device)
    return torch.addcmul(bias, image.float(), factor).to(dtype).permute(0, 3, 1, 2)


def _constants(values: list[float], device: torch.device) -> Tensor:
    """Return a small tensor, filled on the device: a copy from the host would synchronise."""
    return torch.stack([torch.full((), value, device=device) for value in values])
