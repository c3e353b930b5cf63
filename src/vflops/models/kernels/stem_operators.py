"""Operators of the fused ResNet's stem: they launch its kernels with shapes and grid sizes.

Activations are ``[batch, channels, height, width]`` in channels-last memory.
"""

from __future__ import annotations

import torch
from torch import Tensor

from vflops.models.kernels import stem_kernels
from vflops.models.kernels.fused_operators import Sums, Tile, pixels, processors
from vflops.models.kernels.launching import launch

STEM = Tile(64, 64, 4, 2, 2)
STEM_BACKWARD = Tile(64, 64, 8, 2, 1)


def space_to_depth(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Return images as 2×2 patches in 16 channels, 12 pixels and 4 zeros, padded for the stem."""
    batch, _, height, width = x.shape
    shape = (batch, 16, height // 2 + 3, width // 2 + 3)
    out = torch.empty(shape, dtype=dtype, device=x.device, memory_format=torch.channels_last)
    launch(
        stem_kernels.space_to_depth,
        (-(-out.numel() // 4096),),
        x,
        out,
        out.numel(),
        *x.stride(),
        HEIGHT=height // 2,
        WIDTH=width // 2,
        BLOCK=4096,
        num_warps=8,
    )
    return out


def stem_forward(images: Tensor, weight: Tensor, tile: Tile = STEM) -> tuple[Tensor, Sums]:
    """Convolve patches with a 4×4 kernel; return the output, and sums of it and its squares."""
    batch, _, height, width = images.shape
    channels = weight.shape[0]
    y = torch.empty(
        (batch, channels, height - 3, width - 3),
        dtype=images.dtype,
        device=images.device,
        memory_format=torch.channels_last,
    )
    tiles = pixels(y) // tile.rows
    programs = min(tiles, processors(y) * tile.waves)
    partial = torch.empty((programs, 2, channels), device=y.device)
    launch(
        stem_kernels.stem_forward,
        (programs,),
        images,
        weight,
        y,
        partial,
        tiles,
        HEIGHT=height - 3,
        WIDTH=width - 3,
        N=channels,
        ROWS=tile.rows,
        STAGES=tile.stages,
        num_warps=tile.warps,
    )
    return y, Sums(partial)


def pool_forward(y: Tensor, bn: Tensor, rows: int = 32, warps: int = 4) -> tuple[Tensor, Tensor]:
    """Return the y that 3×3/2 max-pooling of ``relu(bn(y))`` selects, and its window position."""
    batch, channels, height, width = y.shape
    chosen = torch.empty(
        (batch, channels, height // 2, width // 2),
        dtype=y.dtype,
        device=y.device,
        memory_format=torch.channels_last,
    )
    where = torch.empty_like(chosen, dtype=torch.uint8)
    launch(
        stem_kernels.pool_forward,
        (pixels(chosen) // rows,),
        y,
        bn,
        chosen,
        where,
        HEIGHT=height // 2,
        WIDTH=width // 2,
        C=channels,
        ROWS=rows,
        num_warps=warps,
    )
    return chosen, where


def stem_backward(
    g: Tensor,
    where: Tensor,
    y: Tensor,
    coefficients: Tensor,
    images: Tensor,
    tile: Tile = STEM_BACKWARD,
) -> Tensor:
    """Return the gradient of the 4×4 kernel ``[channels, 16, 4, 4]`` from that of the pooling."""
    channels, height, width = y.shape[1:]
    tiles = pixels(y) // tile.rows
    programs = min(tiles, processors(y) * tile.waves)
    dw = torch.empty((programs, channels, 256), device=y.device)
    launch(
        stem_kernels.stem_backward,
        (programs,),
        g,
        where,
        y,
        coefficients,
        images,
        dw,
        tiles,
        HEIGHT=height,
        WIDTH=width,
        C=channels,
        ROWS=tile.rows,
        STAGES=tile.stages,
        num_warps=tile.warps,
    )
    return dw.sum(0).view(channels, 4, 4, 16).permute(0, 3, 1, 2)
