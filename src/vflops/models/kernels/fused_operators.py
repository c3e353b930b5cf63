"""Operators of the fused ResNet: they launch its kernels with shapes, outputs and grid sizes.

Activations are ``[batch, channels, height, width]`` in channels-last memory and are read as rows of
pixels.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from vflops.models.kernels import bottleneck_kernels
from vflops.models.kernels.launching import launch


@dataclass(frozen=True)
class Tile:
    """The launch parameters of a kernel: pixels and channels per tile, warps, pipeline stages."""

    rows: int
    cols: int
    warps: int
    stages: int
    waves: int
    """Programs per multiprocessor."""
    thread_sums: bool = False
    """Whether each thread keeps sums until the end: fewer shuffles, more registers."""


@dataclass(frozen=True)
class Sums:
    """Partial sums per channel, one per program: ``[programs, sums, channels]``.

    In the backward pass: the gradient, then its products with the outputs of one or two
    convolutions.
    """

    partial: Tensor

    @property
    def programs(self) -> int:
        """Number of partial sums."""
        return self.partial.shape[0]


FORWARD: dict[tuple[int, int], Tile] = {
    (64, 64): Tile(128, 64, 4, 3, 2),
    (64, 256): Tile(64, 256, 4, 3, 2),
    (256, 64): Tile(64, 64, 4, 3, 1),
    (256, 128): Tile(64, 128, 8, 3, 1),
    (128, 512): Tile(64, 128, 8, 3, 2),
}
"""1×1 convolutions whose fused forward pass was measured to be faster, by channels in and out."""

BACKWARD: dict[tuple[int, int], Tile] = {
    (64, 64): Tile(64, 64, 4, 3, 2),
    (64, 256): Tile(64, 64, 8, 3, 1),
    (256, 64): Tile(64, 128, 4, 2, 2),
    (256, 128): Tile(64, 64, 4, 2, 2),
    (512, 128): Tile(64, 64, 4, 2, 2),
}
"""The same for the backward pass."""


_TILE = 4096
"""Elements per tile of a kernel that is limited by memory bandwidth."""


def pixels(x: Tensor) -> int:
    """Return the number of pixels of a batch of activations."""
    return x.shape[0] * x.shape[2] * x.shape[3]


def empty_activation(x: Tensor, channels: int) -> Tensor:
    """Return an uninitialised channels-last tensor of the size of ``x`` with ``channels``."""
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
    """Convolve x, or ``relu(bn(x))``; return the output and the sums of it and its squares."""
    channels_out, channels_in = weight.shape[:2]
    tile = tile or FORWARD[channels_in, channels_out]
    y = empty_activation(x, channels_out)
    columns = channels_out // tile.cols
    tiles = pixels(x) // tile.rows
    programs = max(1, min(tiles, processors(x) * tile.waves // columns))
    partial = torch.empty((programs, 2, channels_out), device=x.device)
    scale, shift = (partial, partial) if bn is None else (bn, bn[1])
    launch(
        bottleneck_kernels.conv1x1_forward,
        (columns, programs),
        x,
        scale,
        shift,
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
    """Return the gradients of input and weight, and the sums for the BN of the input.

    The kernel documents the arguments; ``y_before`` is x if x is read through its BN.
    """
    channels_out, channels_in = weight.shape[:2]
    tile = tile or BACKWARD[channels_in, channels_out]
    dx = torch.empty_like(x)
    columns = channels_in // tile.cols
    tiles = pixels(x) // tile.rows
    programs = max(1, min(tiles, processors(x) * tile.waves // columns))
    dw = torch.empty((programs, channels_out, channels_in), device=x.device)
    sums = 0 if y_before is None else 2 if y_other is None else 3
    partial = torch.empty((programs, sums, channels_in), device=x.device)
    strided = shortcut is not None and shortcut.shape != x.shape
    coefficients_in = bn if x_bn is None else x_bn
    launch(
        bottleneck_kernels.conv1x1_backward,
        (columns, programs),
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
        GROUP=tile.rows if tile.thread_sums else 1,
        STAGES=tile.stages,
        num_warps=tile.warps,
    )
    return dx, dw.sum(0), Sums(partial) if sums else None


def channel_sums(y: Tensor) -> Sums:
    """Return the sums of y and y² for each channel."""
    channels = y.shape[1]
    cols, rows, programs, tiles = _reduction_grid(y, channels)
    partial = torch.empty((programs, 2, channels), device=y.device)
    launch(
        bottleneck_kernels.channel_sums,
        (channels // cols, programs),
        y,
        partial,
        tiles,
        C=channels,
        ROWS=rows,
        COLS=cols,
        num_warps=8,
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
    """Return scale, shift, mean and 1/deviation ``[4, channels]``; update running statistics."""
    channels = weight.shape[0]
    out = torch.empty((4, channels), device=weight.device)
    cols = _columns(channels, 16)
    launch(
        bottleneck_kernels.forward_coefficients,
        (channels // cols,),
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
        COLS=cols,
        num_warps=8,
    )
    return out


def backward_coefficients(
    sums: Sums, count: int, weight: Tensor, bn: Tensor, product: int = 1
) -> tuple[Tensor, Tensor, Tensor]:
    """Return a, b and c of the backward pass ``[3, channels]``, and gradients of weight and bias.

    ``product`` is the index of the sum with this layer's output.
    """
    channels = weight.shape[0]
    out = torch.empty((3, channels), device=weight.device)
    dweight, dbias = torch.empty_like(weight), torch.empty_like(weight)
    cols = _columns(channels, 16)
    launch(
        bottleneck_kernels.backward_coefficients,
        (channels // cols,),
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
        COLS=cols,
        num_warps=8,
    )
    return out, dweight, dbias


def normalise(
    y: Tensor, bn: Tensor, shortcut: Tensor | None = None, shortcut_bn: Tensor | None = None
) -> Tensor:
    """Return ``relu(bn(y) + shortcut)``; the shortcut is normalised if ``shortcut_bn`` is given."""
    channels = y.shape[1]
    out = torch.empty_like(y)
    cols, rows = _tile(y)
    launch(
        bottleneck_kernels.normalise,
        (pixels(y) // rows, channels // cols),
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
    """Return the sums of g and g·y for each channel; with bn, g is masked by ``relu(bn(y))``."""
    channels = y.shape[1]
    cols, rows, programs, tiles = _reduction_grid(y, channels)
    partial = torch.empty((programs, 2, channels), device=y.device)
    launch(
        bottleneck_kernels.gradient_sums,
        (channels // cols, programs),
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
    """Return ``g + shortcut`` where ``output`` is above 0, and its sums with y and y_other."""
    channels = y.shape[1]
    cols, rows, programs, tiles = _reduction_grid(y, channels)
    sums = 2 if y_other is None else 3
    partial = torch.empty((programs, sums, channels), device=y.device)
    masked = torch.empty_like(y)
    strided = shortcut is not None and shortcut.shape != y.shape
    launch(
        bottleneck_kernels.gradient_sums,
        (channels // cols, programs),
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
    """Return the gradient of y; with ``mask``, g is first set to 0 where ``relu(bn(y))`` is 0."""
    channels = y.shape[1]
    dy = torch.empty_like(y)
    cols, rows = _tile(y)
    launch(
        bottleneck_kernels.normalise_backward,
        (pixels(y) // rows, channels // cols),
        g,
        y,
        bn,
        coefficients,
        dy,
        C=channels,
        ROWS=rows,
        COLS=cols,
        MASK=mask,
        num_warps=8,
    )
    return dy


def processors(x: Tensor) -> int:
    """Return the number of multiprocessors of the device of ``x``."""
    if x.device.type == "cpu":  # Triton's interpreter
        return 4
    return int(torch.cuda.get_device_properties(x.device).multi_processor_count)


def _reduction_grid(y: Tensor, channels: int) -> tuple[int, int, int, int]:
    # Columns and rows per tile, number of programs and tiles of a reduction over pixels.
    cols, rows = _tile(y)
    tiles = pixels(y) // rows
    return cols, rows, max(1, min(tiles, processors(y) * 4 * cols // channels)), tiles


def _tile(y: Tensor) -> tuple[int, int]:
    """Return channels and pixels per tile: powers of two that divide those of ``y``."""
    cols = _columns(y.shape[1], 128)
    return cols, min(_TILE // cols, _power_of_two(pixels(y)))


def _columns(channels: int, most: int) -> int:
    return min(_power_of_two(channels), most)


def _power_of_two(number: int) -> int:
    """Return the largest power of two that divides ``number``."""
    return number & -number
