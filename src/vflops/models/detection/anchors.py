"""Anchors: boxes of fixed sizes around every cell of a feature map, from which proposals start.

The layout is that of torchvision's ``AnchorGenerator``: corners around the origin are rounded to
whole pixels, and the cell in row i and column j shifts them by (j · stride, i · stride).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from vflops.models.detection.detector_design import Size


def anchors(
    shapes: Sequence[tuple[int, int]],
    strides: Sequence[int],
    sizes: Sequence[Sequence[Size]],
    *,
    device: torch.device | str | None = None,
) -> list[Tensor]:
    """Return anchors (height · width · sizes, 4) of each level in the order (row, column, size).

    ``shapes`` are the heights and widths of the feature maps, one per level of the pyramid. Anchors
    depend on the settings alone: create them once and keep them as buffers.
    """
    return [
        _level_anchors(shape, stride, level_sizes, device)
        for shape, stride, level_sizes in zip(shapes, strides, sizes, strict=True)
    ]


def _level_anchors(
    shape: tuple[int, int], stride: int, sizes: Sequence[Size], device: torch.device | str | None
) -> Tensor:
    # Halves are rounded to even, as in torch.round.
    corners = [(round(width / 2), round(height / 2)) for height, width in sizes]
    base = torch.tensor(
        [(-x, -y, x, y) for x, y in corners], dtype=torch.float32, device=device
    ).reshape(-1, 4)
    height, width = shape
    y = torch.arange(height, dtype=torch.float32, device=device) * stride
    x = torch.arange(width, dtype=torch.float32, device=device) * stride
    rows, columns = torch.meshgrid(y, x, indexing="ij")
    shifts = torch.stack((columns, rows, columns, rows), dim=-1)
    return (shifts.unsqueeze(-2) + base).reshape(-1, 4)
