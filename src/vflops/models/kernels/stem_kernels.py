"""Triton kernels of the fused ResNet's stem: its convolution over 2×2 patches, and max-pooling.

Activations are rows of pixels, ``[pixels, channels]`` (NHWC). The parameter ``forward`` ``[4, C]``
holds scale, shift, mean and 1/deviation of the batch normalisation for each channel; ``backward``
``[3, C]`` holds a, b and c of its gradient ``a·g + b·y + c``. Import this module only if Triton is
installed.
"""

# Triton code is not typed Python, and its constants are in capitals.
# mypy: ignore-errors
# ruff: noqa: N803

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def space_to_depth(
    x,
    out,
    elements,
    per_image,
    per_channel,
    per_row,
    per_column,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Write images as 2×2 patches of 16 channels, padded by two patches before and one after.

    12 channels hold pixels, the others zeros. x has three channels and any strides; HEIGHT and
    WIDTH count patches; out is NHWC.
    """
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    depth = at % 16
    pixel = at // 16
    column = pixel % (WIDTH + 3) - 2
    line = pixel // (WIDTH + 3)
    row = line % (HEIGHT + 3) - 2
    image = line // (HEIGHT + 3)
    inside = (row >= 0) & (row < HEIGHT) & (column >= 0) & (column < WIDTH) & (depth < 12)
    r = 2 * row + depth // 6
    q = 2 * column + depth // 3 % 2
    source = image * per_image + depth % 3 * per_channel + r * per_row + q * per_column
    v = tl.load(x + source, mask=inside & (at < elements), other=0.0)
    tl.store(out + at, v.to(out.dtype.element_ty), mask=at < elements)


@triton.jit
def stem_forward(
    x,
    w,
    y,
    partial,
    tiles,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
    N: tl.constexpr,
    ROWS: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Compute the 4×4 convolution over patches and the sums of y and y² for each channel.

    Four adjacent patches of a row are 64 consecutive numbers in memory, so a window of 4×4 patches
    is read as four runs of 64 numbers. w is ``[N, 256]``.
    """
    pid = tl.program_id(0)
    cols = tl.arange(0, N)
    depth = tl.arange(0, 256)
    weight = tl.load(w + cols[:, None] * 256 + depth[None, :])
    offsets = depth // 64 * ((WIDTH + 3) * 16) + depth % 64
    sums = tl.zeros([N], tl.float32)
    squares = tl.zeros([N], tl.float32)
    for tile in tl.range(pid, tiles, tl.num_programs(0), num_stages=STAGES):
        rows = tile * ROWS + tl.arange(0, ROWS)
        line = rows // WIDTH
        row = line % HEIGHT
        image = line // HEIGHT
        first = ((image * (HEIGHT + 3) + row) * (WIDTH + 3) + rows % WIDTH) * 16
        a = tl.load(x + first[:, None] + offsets[None, :])
        out = tl.dot(weight, tl.trans(a)).to(y.dtype.element_ty)
        v = out.to(tl.float32)
        sums += tl.sum(v, axis=1)
        squares += tl.sum(v * v, axis=1)
        tl.store(y + rows[:, None] * N + cols[None, :], tl.trans(out))
    at = partial + pid * 2 * N + cols
    tl.store(at, sums)
    tl.store(at + N, squares)


@triton.jit
def pool_forward(
    y,
    forward,
    chosen,
    where,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
    C: tl.constexpr,
    ROWS: tl.constexpr,
):
    """Max-pool ``relu(bn(y))`` 3×3/2: write the selected y and its position in the window (0 to 8).

    HEIGHT and WIDTH are those of the output. y is stored before normalisation: the next convolution
    normalises as it reads, and the sums of the batch normalisation's backward pass need y only at
    the selected pixels.
    """
    cols = tl.arange(0, C)
    pixels = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = pixels % WIDTH
    line = pixels // WIDTH
    row = line % HEIGHT
    image = line // HEIGHT
    scale = tl.load(forward + cols)[None, :]
    best = tl.full([ROWS, C], float("-inf"), tl.float32)
    best_y = tl.zeros([ROWS, C], tl.float32)
    place = tl.zeros([ROWS, C], tl.int32)
    for i in tl.static_range(3):
        for j in tl.static_range(3):
            r = 2 * row - 1 + i
            q = 2 * column - 1 + j
            inside = ((r >= 0) & (q >= 0))[:, None]  # always below 2·HEIGHT, 2·WIDTH
            at = (image * (2 * HEIGHT) + r) * (2 * WIDTH) + q
            v = tl.load(y + at[:, None] * C + cols[None, :], mask=inside, other=0.0).to(tl.float32)
            rank = tl.where(inside, v * scale, float("-inf"))
            better = rank > best
            best = tl.where(better, rank, best)
            best_y = tl.where(better, v, best_y)
            place = tl.where(better, 3 * i + j, place)
    out_at = pixels[:, None] * C + cols[None, :]
    tl.store(chosen + out_at, best_y.to(chosen.dtype.element_ty))
    tl.store(where + out_at, place.to(tl.uint8))


@triton.jit
def stem_backward(
    g,
    where,
    y,
    backward,
    x,
    dw_partial,
    tiles,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
    C: tl.constexpr,
    ROWS: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Compute the gradient of ``stem_forward``'s weight through pool, ReLU and normalisation.

    g is the gradient of the pool's output; HEIGHT and WIDTH are those of the convolution. At each
    pixel the gradient is gathered from up to four windows over it (without atomic additions),
    becomes ``a·g + b·y + c`` and goes directly into the product, without a copy in memory.
    """
    pid = tl.program_id(0)
    cols = tl.arange(0, C)
    depth = tl.arange(0, 256)
    offsets = depth // 64 * ((WIDTH + 3) * 16) + depth % 64
    a = tl.load(backward + cols)[None, :]
    b = tl.load(backward + C + cols)[None, :]
    c = tl.load(backward + 2 * C + cols)[None, :]
    dw = tl.zeros([256, C], tl.float32)
    for tile in tl.range(pid, tiles, tl.num_programs(0), num_stages=STAGES):
        pixels = tile * ROWS + tl.arange(0, ROWS)
        column = pixels % WIDTH
        line = pixels // WIDTH
        row = line % HEIGHT
        image = line // HEIGHT
        first = ((image * (HEIGHT + 3) + row) * (WIDTH + 3) + column) * 16
        patch = tl.load(x + first[:, None] + offsets[None, :])
        value = tl.load(y + pixels[:, None] * C + cols[None, :]).to(tl.float32)
        total = tl.zeros([ROWS, C], tl.float32)
        for i in tl.static_range(2):
            for j in tl.static_range(2):
                r = row // 2 + i  # even rows are in one window, odd ones in two
                q = column // 2 + j
                inside = (r < HEIGHT // 2) & (q < WIDTH // 2)
                if i == 1:
                    inside = inside & (row % 2 == 1)
                if j == 1:
                    inside = inside & (column % 2 == 1)
                inside = inside[:, None]
                place = (row - 2 * r + 1) * 3 + column - 2 * q + 1
                window = (image * (HEIGHT // 2) + r) * (WIDTH // 2) + q
                window_at = window[:, None] * C + cols[None, :]
                picked = tl.load(where + window_at, mask=inside, other=255).to(tl.int32)
                v = tl.load(g + window_at, mask=inside, other=0.0).to(tl.float32)
                total += tl.where(picked == place[:, None], v, 0.0)
        dy = (a * total + b * value + c).to(patch.dtype)
        dw = tl.dot(tl.trans(patch), dy, dw)
    tl.store(dw_partial + (pid * C + cols[None, :]) * 256 + depth[:, None], dw)
