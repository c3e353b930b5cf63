"""Boxes as x1, y1, x2, y2: areas, overlaps, and the codes that a regression head predicts.

All arithmetic is in float32 (or float64 for float64 inputs), even under autocast.
"""

from __future__ import annotations

import math
from typing import Final

import torch
from torch import Tensor

Weights = tuple[float, float, float, float]
"""Factors of dx, dy, dw and dh in a code: larger ones make the loss stricter."""

MAX_LOG_GROWTH: Final = math.log(1000 / 16)
"""A decoded side is at most exp(this) times that of its reference, to prevent overflow."""

MIN_SIDE: Final = 1e-3
"""Minimum side in pixels; shorter sides are encoded as this one, so that codes are finite."""


def area(boxes: Tensor) -> Tensor:
    """Return the areas (…) of boxes (…, 4); 0 for an empty or inverted box."""
    x1, y1, x2, y2 = _as_float(boxes).unbind(-1)
    return (x2 - x1).clamp(min=0) * (y2 - y1).clamp(min=0)


def iou(a: Tensor, b: Tensor) -> Tensor:
    """Return the IoU (…, N, M) of boxes (…, N, 4) and (…, M, 4); 0 if one is empty."""
    if a.shape[-2] > b.shape[-2]:  # a CPU is faster if the longer dimension is the inner loop
        return iou(b, a).transpose(-1, -2)
    left, top, right, bottom = _planes(a).unsqueeze(-1)
    x1, y1, x2, y2 = _planes(b).unsqueeze(-2)
    width = (torch.minimum(right, x2) - torch.maximum(left, x1)).clamp(min=0)
    height = (torch.minimum(bottom, y2) - torch.maximum(top, y1)).clamp(min=0)
    shared = width * height
    union = area(a).unsqueeze(-1) + area(b).unsqueeze(-2) - shared
    return shared / union.clamp(min=torch.finfo(union.dtype).tiny)


def encode(references: Tensor, boxes: Tensor, weights: Weights = (1.0, 1.0, 1.0, 1.0)) -> Tensor:
    """Return codes (…, 4) as dx, dy, dw, dh that map references (…, 4) to ``boxes`` (…, 4)."""
    x, y, width, height = _centred(references)
    to_x, to_y, to_width, to_height = _centred(boxes)
    width, height = width.clamp(min=MIN_SIDE), height.clamp(min=MIN_SIDE)
    wx, wy, ww, wh = weights
    return torch.stack(
        (
            wx * (to_x - x) / width,
            wy * (to_y - y) / height,
            ww * torch.log(to_width.clamp(min=MIN_SIDE) / width),
            wh * torch.log(to_height.clamp(min=MIN_SIDE) / height),
        ),
        dim=-1,
    )


def decode(deltas: Tensor, references: Tensor, weights: Weights = (1.0, 1.0, 1.0, 1.0)) -> Tensor:
    """Return boxes (…, 4) from codes and references; shapes broadcast, for one box per class."""
    dx, dy, dw, dh = _as_float(deltas).unbind(-1)
    x, y, width, height = _centred(references)
    wx, wy, ww, wh = weights
    to_x, to_y = dx / wx * width + x, dy / wy * height + y
    half_width = 0.5 * torch.exp((dw / ww).clamp(max=MAX_LOG_GROWTH)) * width
    half_height = 0.5 * torch.exp((dh / wh).clamp(max=MAX_LOG_GROWTH)) * height
    return torch.stack(
        (to_x - half_width, to_y - half_height, to_x + half_width, to_y + half_height), dim=-1
    )


def clip(boxes: Tensor, height: float, width: float) -> Tensor:
    """Return boxes (…, 4) clipped to the image."""
    x1, y1, x2, y2 = _as_float(boxes).unbind(-1)
    return torch.stack(
        (x1.clamp(0, width), y1.clamp(0, height), x2.clamp(0, width), y2.clamp(0, height)), dim=-1
    )


def _as_float(boxes: Tensor) -> Tensor:
    return boxes if boxes.dtype == torch.float64 else boxes.float()


def _planes(boxes: Tensor) -> Tensor:
    # (4, …): each coordinate contiguous.
    return _as_float(boxes).movedim(-1, 0).contiguous()


def _centred(boxes: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    # Centres and sides.
    x1, y1, x2, y2 = _as_float(boxes).unbind(-1)
    width, height = x2 - x1, y2 - y1
    return x1 + 0.5 * width, y1 + 0.5 * height, width, height
