"""The kernels as functions of tensors: shapes, outputs and launch sizes are settled here.

Activations come as ``[batch, channels, height, width]`` in channels-last memory and are read as
rows of pixels.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from vflops.models.kernels import triton_kernels


@dataclass(frozen=True)
class Tile:
    """How one kernel cuts its work: pixels and channels a tile, warps, stages in flight."""

    rows: int
    cols: int
    warps: int
    stages: int
    waves: int
    """Programs a multiprocessor."""
    each: bool = False
    """Whether a thread keeps sums of its own until the end: fewer shuffles, more registers."""


@dataclass(frozen=True)
class Sums:
    """Sums a channel, still apart by program: ``[programs, sums, channels]``.

    In the backward the gradient's first, then its products with one or two convolutions' outputs.
    """

    partial: Tensor

    @property
    def programs(self) -> int:
        """How many partial sums there are."""
        return self.partial.shape[0]


FORWARD: dict[tuple[int, int], Tile] = {
    (64, 64): Tile(128, 64, 4, 3, 2),
    (64, 256): Tile(64, 256, 4, 3, 2),
    (256, 64): Tile(64, 64, 4, 3, 1),
    (256, 128): Tile(64, 128, 8, 3, 1),
    (128, 512): Tile(64, 128, 8, 3, 2),
}
"""By channels in and out: the 1×1 convolutions whose forward is faster fused, as measured."""

BACKWARD: dict[tuple[int, int], Tile] = {
    (64, 64): Tile(64, 64, 4, 3, 2),
    (64, 256): Tile(64, 64, 8, 3, 1),
    (256, 64): Tile(64, 128, 4, 2, 2),
    (256, 128): Tile(64, 64, 4, 2, 2),
    (512, 128): Tile(64, 64, 4, 2, 2),
}
"""The same of the backward."""

STEM = Tile(64, 64, 4, 2, 2)
STEM_BACKWARD = Tile(64, 64, 8, 2, 1)


def pixels(x: Tensor) -> int:
    """How many pixels a batch of activations has."""
    return x.shape[0] * x.shape[2] * x.shape[3]


def like(x: Tensor, channels: int) -> Tensor:
    """An empty channels-last tensor of ``x``'s batch and size with ``channels``."""
    batch, _, height, width = x.shape
    return torch.empty(
        (batch, channels, height, width),
        dtype=x.dtype,
        device=x.device,
        memory_format=torch.channels_last,
    )


def conv1x1_forward(
    x: Tensor, bn: Tensor | None, weight: Tensor, tile: Tile | None = None
) -> tuple[Tensor, Sums]:
    """The convolution of x, or of ``relu(bn(x))``, and the sums of its output and its squares."""
    channels_out, channels_in = weight.shape[:2]
    tile = tile or FORWARD[channels_in, channels_out]
    y = like(x, channels_out)
    columns = channels_out // tile.cols
    tiles = pixels(x) // tile.rows
    programs = max(1, min(tiles, _processors(x) * tile.waves // columns))
    partial = torch.empty((programs, 2, channels_out), device=x.device)
    coefficients = partial if bn is None else bn
    triton_kernels.conv1x1_forward[(columns, programs)](
        x,
        coefficients,
        coefficients[1],
        weight,
        y,
        partial,
        tiles,
        K=channels_in,
        N=channels_out,
        ROWS=tile.rows,
        COLS=tile.cols,
        PROLOGUE=bn is not None,
        STAGES=tile.stages,
        num_warps=tile.warps,
    )
    return y, Sums(partial)


def conv1x1_backward(
    g: Tensor,
    y: Tensor,
    bn: Tensor,
    coefficients: Tensor,
    weight: Tensor,
    x: Tensor,
    x_bn: Tensor | None,
    *,
    own_mask: bool,
    shortcut: Tensor | None,
    y_before: Tensor | None,
    y_other: Tensor | None = None,
    mask: bool,
    tile: Tile | None = None,
) -> tuple[Tensor, Tensor, Sums | None]:
    """Gradients of the input and the weight, and the sums that the input's own BN needs.

    See the kernel for the rest; ``y_before`` is x itself where x is read through its BN.
    """
    channels_out, channels_in = weight.shape[:2]
    tile = tile or BACKWARD[channels_in, channels_out]
    dx = torch.empty_like(x)
    columns = channels_in // tile.cols
    tiles = pixels(x) // tile.rows
    programs = max(1, min(tiles, _processors(x) * tile.waves // columns))
    dw = torch.empty((programs, channels_out, channels_in), device=x.device)
    sums = 0 if y_before is None else 2 if y_other is None else 3
    partial = torch.empty((programs, sums, channels_in), device=x.device)
    strided = shortcut is not None and shortcut.shape != x.shape
    coefficients_in = bn if x_bn is None else x_bn
    triton_kernels.conv1x1_backward[(columns, programs)](
        g,
        y,
        bn,
        coefficients,
        weight,
        x,
        coefficients_in,
        coefficients_in[1],
        dx if shortcut is None else shortcut,
        dx if y_before is None else y_before,
        dx if y_other is None else y_other,
        dx,
        dw,
        partial,
        tiles,
        x.shape[2],
        x.shape[3],
        N=channels_out,
        K=channels_in,
        ROWS=tile.rows,
        COLS=tile.cols,
        OWN_MASK=own_mask,
        PROLOGUE=x_bn is not None,
        SHORTCUT=0 if shortcut is None else 2 if strided else 1,
        MASK=mask,
        SUMS=sums,
        GROUP=tile.rows if tile.each else 1,
        STAGES=tile.stages,
        num_warps=tile.warps,
    )
    return dx, dw.sum(0), Sums(partial) if sums else None


def channel_sums(y: Tensor) -> Sums:
    """The sums of y and of y² of each channel."""
    channels = y.shape[1]
    cols, rows, programs, tiles = _cut(y, channels)
    partial = torch.empty((programs, 2, channels), device=y.device)
    triton_kernels.channel_sums[(channels // cols, programs)](
        y, partial, tiles, C=channels, ROWS=rows, COLS=cols, num_warps=8
    )
    return Sums(partial)


def forward_coefficients(
    sums: Sums,
    count: int,
    weight: Tensor,
    bias: Tensor,
    running_mean: Tensor,
    running_var: Tensor,
    momentum: float,
    epsilon: float,
) -> Tensor:
    """Scale, shift, mean and 1/deviation ``[4, channels]``; moves the running statistics on."""
    channels = weight.shape[0]
    out = torch.empty((4, channels), device=weight.device)
    triton_kernels.forward_coefficients[(channels // 16,)](
        sums.partial,
        sums.programs,
        weight,
        bias,
        running_mean,
        running_var,
        out,
        count,
        momentum,
        epsilon,
        C=channels,
        ROWS=128,
        COLS=16,
        num_warps=8,
    )
    return out


def backward_coefficients(
    sums: Sums, count: int, weight: Tensor, bn: Tensor, product: int = 1
) -> tuple[Tensor, Tensor, Tensor]:
    """The backward's a, b and c ``[3, channels]`` and the gradients of weight and bias.

    ``product`` says which of the sums is that with this layer's output.
    """
    channels = weight.shape[0]
    out = torch.empty((3, channels), device=weight.device)
    dweight, dbias = torch.empty_like(weight), torch.empty_like(weight)
    triton_kernels.backward_coefficients[(channels // 16,)](
        sums.partial,
        sums.programs,
        weight,
        bn,
        dweight,
        dbias,
        out,
        count,
        C=channels,
        SUMS=sums.partial.shape[1],
        PRODUCT=product,
        ROWS=128,
        COLS=16,
        num_warps=8,
    )
    return out, dweight, dbias


def normalise(
    y: Tensor, bn: Tensor, shortcut: Tensor | None = None, shortcut_bn: Tensor | None = None
) -> Tensor:
    """``relu(bn(y))``, with the shortcut, or the shortcut through its own BN, added before."""
    channels = y.shape[1]
    out = torch.empty_like(y)
    cols = min(channels, 128)
    rows = 4096 // cols
    triton_kernels.normalise[(pixels(y) // rows, channels // cols)](
        y,
        bn,
        y if shortcut is None else shortcut,
        bn if shortcut_bn is None else shortcut_bn,
        out,
        C=channels,
        ROWS=rows,
        COLS=cols,
        SHORTCUT=0 if shortcut is None else 1 if shortcut_bn is None else 2,
        num_warps=8,
    )
    return out


def gradient_sums(g: Tensor, y: Tensor, bn: Tensor | None) -> Sums:
    """Sums of g and g·y of each channel, g zeroed where ``relu(bn(y))`` is; as it is without bn."""
    channels = y.shape[1]
    cols, rows, programs, tiles = _cut(y, channels)
    partial = torch.empty((programs, 2, channels), device=y.device)
    triton_kernels.gradient_sums[(channels // cols, programs)](
        g,
        g,
        g,
        y,
        y,
        partial if bn is None else bn,
        g,
        partial,
        tiles,
        1,
        1,
        C=channels,
        ROWS=rows,
        COLS=cols,
        MASK=0 if bn is None else 1,
        SHORTCUT=0,
        SUMS=2,
        num_warps=8,
    )
    return Sums(partial)


def join_gradients(
    g: Tensor, shortcut: Tensor | None, output: Tensor, y: Tensor, y_other: Tensor | None
) -> tuple[Tensor, Sums]:
    """``g + shortcut`` where ``output`` is above zero, and its sums with y and the other y."""
    channels = y.shape[1]
    cols, rows, programs, tiles = _cut(y, channels)
    sums = 2 if y_other is None else 3
    partial = torch.empty((programs, sums, channels), device=y.device)
    masked = torch.empty_like(y)
    strided = shortcut is not None and shortcut.shape != y.shape
    triton_kernels.gradient_sums[(channels // cols, programs)](
        g,
        g if shortcut is None else shortcut,
        output,
        y,
        y if y_other is None else y_other,
        partial,
        masked,
        partial,
        tiles,
        y.shape[2],
        y.shape[3],
        C=channels,
        ROWS=rows,
        COLS=cols,
        MASK=2,
        SHORTCUT=0 if shortcut is None else 2 if strided else 1,
        SUMS=sums,
        num_warps=8,
    )
    return masked, Sums(partial)


def normalise_backward(
    g: Tensor, y: Tensor, bn: Tensor, coefficients: Tensor, *, mask: bool
) -> Tensor:
    """The gradient at y; with ``mask``, g is first zeroed where ``relu(bn(y))`` is."""
    channels = y.shape[1]
    dy = torch.empty_like(y)
    cols = min(channels, 128)
    rows = 4096 // cols
    triton_kernels.normalise_backward[(pixels(y) // rows, channels // cols)](
        g, y, bn, coefficients, dy, C=channels, ROWS=rows, COLS=cols, MASK=mask, num_warps=8
    )
    return dy


def space_to_depth(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Images as 2×2 patches in 16 channels: 12 of pixels and 4 of zeros, padded for the stem."""
    batch, _, height, width = x.shape
    shape = (batch, 16, height // 2 + 3, width // 2 + 3)
    out = torch.empty(shape, dtype=dtype, device=x.device, memory_format=torch.channels_last)
    triton_kernels.space_to_depth[(-(-out.numel() // 4096),)](
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
    """The 4×4 convolution over ``space_to_depth`` and the sums of its output and its squares."""
    batch, _, height, width = images.shape
    channels = weight.shape[0]
    y = torch.empty(
        (batch, channels, height - 3, width - 3),
        dtype=images.dtype,
        device=images.device,
        memory_format=torch.channels_last,
    )
    tiles = pixels(y) // tile.rows
    programs = min(tiles, _processors(y) * tile.waves)
    partial = torch.empty((programs, 2, channels), device=y.device)
    triton_kernels.stem_forward[(programs,)](
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
    """What 3×3/2 max-pooling of ``relu(bn(y))`` chooses of y, and where in each window."""
    batch, channels, height, width = y.shape
    chosen = torch.empty(
        (batch, channels, height // 2, width // 2),
        dtype=y.dtype,
        device=y.device,
        memory_format=torch.channels_last,
    )
    where = torch.empty_like(chosen, dtype=torch.uint8)
    triton_kernels.pool_forward[(pixels(chosen) // rows,)](
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
    """The gradient of the 4×4 kernel ``[channels, 16, 4, 4]`` from that at the pool's output."""
    channels, height, width = y.shape[1:]
    tiles = pixels(y) // tile.rows
    programs = min(tiles, _processors(y) * tile.waves)
    dw = torch.empty((programs, channels, 256), device=y.device)
    triton_kernels.stem_backward[(programs,)](
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


def _processors(x: Tensor) -> int:
    if x.device.type == "cpu":  # Triton's interpreter
        return 4
    return int(torch.cuda.get_device_properties(x.device).multi_processor_count)


def _cut(y: Tensor, channels: int) -> tuple[int, int, int, int]:
    # Columns and rows a tile, programs and tiles of a reduction over pixels.
    cols = min(channels, 128)
    rows = 4096 // cols
    tiles = pixels(y) // rows
    return cols, rows, max(1, min(tiles, _processors(y) * 4 * cols // channels)), tiles
