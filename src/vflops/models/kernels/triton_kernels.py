"""Triton kernels of the fused ResNet: 1×1 convolutions and what stands between convolutions.

Activations are rows of pixels, ``[pixels, channels]`` (NHWC). Batch normalisation is two
coefficients a channel in the forward, ``scale·y + shift``, and three in the backward,
``a·g + b·y + c``, so it fuses into whatever reads or writes the tensor next to it. Imported only
where there is a GPU.
"""

# Triton is a language of its own in Python's clothes: constants in capitals, no types.
# mypy: ignore-errors
# ruff: noqa: N803, SIM108

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def conv1x1_forward(
    x,
    scale,
    shift,
    w,
    y,
    partial,
    tiles,
    K: tl.constexpr,
    N: tl.constexpr,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
    PROLOGUE: tl.constexpr,
    STAGES: tl.constexpr,
):
    """``y = input @ wᵀ`` with the sums of y and y² of each channel.

    ``input`` is x, or ``relu(scale·x + shift)`` with PROLOGUE. The sums go to ``partial``
    ``[programs, 2, N]``.
    """
    pid = tl.program_id(1)
    programs = tl.num_programs(1)
    cols = tl.program_id(0) * COLS + tl.arange(0, COLS)
    depth = tl.arange(0, K)
    weight = tl.load(w + cols[:, None] * K + depth[None, :])
    sums = tl.zeros([COLS], tl.float32)
    squares = tl.zeros([COLS], tl.float32)
    if PROLOGUE:
        s = tl.load(scale + depth)[None, :]
        t = tl.load(shift + depth)[None, :]
    for tile in tl.range(pid, tiles, programs, num_stages=STAGES):
        rows = tile * ROWS + tl.arange(0, ROWS)
        a = tl.load(x + rows[:, None] * K + depth[None, :])
        if PROLOGUE:
            a = tl.maximum(a.to(tl.float32) * s + t, 0.0).to(weight.dtype)
        # Transposed, so that a thread holds many pixels of few channels: the sums need almost no
        # shuffles, and what was normalised on reading goes to the tensor cores by shared memory.
        out = tl.dot(weight, tl.trans(a)).to(y.dtype.element_ty)
        v = out.to(tl.float32)
        sums += tl.sum(v, axis=1)
        squares += tl.sum(v * v, axis=1)
        tl.store(y + rows[:, None] * N + cols[None, :], tl.trans(out))
    at = partial + pid * 2 * N + cols
    tl.store(at, sums)
    tl.store(at + N, squares)


@triton.jit
def conv1x1_backward(
    g,
    y,
    forward,
    coefficients,
    w,
    x,
    scale,
    shift,
    shortcut,
    y_before,
    y_other,
    dx,
    dw_partial,
    partial,
    tiles,
    height,
    width,
    N: tl.constexpr,
    K: tl.constexpr,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
    OWN_MASK: tl.constexpr,
    PROLOGUE: tl.constexpr,
    SHORTCUT: tl.constexpr,
    MASK: tl.constexpr,
    SUMS: tl.constexpr,
    GROUP: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Both gradients of a 1×1 convolution and its batch normalisation, in one pass.

    ``dy = a·g + b·y + c`` is the gradient at the convolution's output, g zeroed where
    ``relu(bn(y))`` is (OWN_MASK) or masked already; ``dx = dy @ w`` plus the
    shortcut's gradient (SHORTCUT 1: same shape, 2: of every second pixel), zero where the input is
    (MASK), with the sums of dx, of dx·y_before and of dx·y_other of each channel (the first SUMS of
    these); ``dw_partial`` ``[programs, N, K]`` adds up to the weight's gradient.
    """
    pid = tl.program_id(1)
    programs = tl.num_programs(1)
    cols = tl.program_id(0) * COLS + tl.arange(0, COLS)
    depth = tl.arange(0, N)
    weight = tl.load(w + depth[None, :] * K + cols[:, None])
    a = tl.load(coefficients + depth)[None, :]
    b = tl.load(coefficients + N + depth)[None, :]
    c = tl.load(coefficients + 2 * N + depth)[None, :]
    if OWN_MASK:
        own_scale = tl.load(forward + depth)[None, :]
        own_shift = tl.load(forward + N + depth)[None, :]
    if PROLOGUE:
        s = tl.load(scale + cols)[None, :]
        t = tl.load(shift + cols)[None, :]
    dw = tl.zeros([COLS, N], tl.float32)
    if SUMS:
        sums = tl.zeros([GROUP, COLS], tl.float32)
        products = tl.zeros([GROUP, COLS], tl.float32)
    if SUMS == 3:
        others = tl.zeros([GROUP, COLS], tl.float32)
    for tile in tl.range(pid, tiles, programs, num_stages=STAGES):
        rows = tile * ROWS + tl.arange(0, ROWS)
        out_at = rows[:, None] * N + depth[None, :]
        in_at = rows[:, None] * K + cols[None, :]
        grad = tl.load(g + out_at).to(tl.float32)
        value = tl.load(y + out_at).to(tl.float32)
        if OWN_MASK:
            grad = tl.where(value * own_scale + own_shift > 0, grad, 0.0)
        dy = (a * grad + b * value + c).to(weight.dtype)
        raw = tl.load(x + in_at)
        if PROLOGUE:
            inputs = tl.maximum(raw.to(tl.float32) * s + t, 0.0).to(weight.dtype)
        else:
            inputs = raw
        d = tl.trans(tl.dot(weight, tl.trans(dy)))
        dw = tl.dot(tl.trans(inputs), dy, dw)
        if SHORTCUT == 1:
            d += tl.load(shortcut + in_at).to(tl.float32)
        if SHORTCUT == 2:
            column = rows % width
            line = rows // width
            row = line % height
            image = line // height
            here = (column % 2 == 0) & (row % 2 == 0)
            half = (image * (height // 2) + row // 2) * (width // 2) + column // 2
            part = tl.load(
                shortcut + half[:, None] * K + cols[None, :], mask=here[:, None], other=0.0
            )
            d += part.to(tl.float32)
        if MASK:
            d = tl.where(inputs > 0, d, 0.0)
        rounded = d.to(dx.dtype.element_ty)
        tl.store(dx + in_at, rounded)
        if SUMS:
            v = rounded.to(tl.float32)
            before = raw if PROLOGUE else tl.load(y_before + in_at)
            product = v * before.to(tl.float32)
            sums += v if GROUP > 1 else tl.sum(v, axis=0)[None, :]
            products += product if GROUP > 1 else tl.sum(product, axis=0)[None, :]
        if SUMS == 3:
            product = v * tl.load(y_other + in_at).to(tl.float32)
            others += product if GROUP > 1 else tl.sum(product, axis=0)[None, :]
    tl.store(dw_partial + (pid * N + depth[None, :]) * K + cols[:, None], dw)
    if SUMS:
        at = partial + pid * SUMS * K + cols
        tl.store(at, tl.sum(sums, axis=0))
        tl.store(at + K, tl.sum(products, axis=0))
    if SUMS == 3:
        tl.store(at + 2 * K, tl.sum(others, axis=0))


@triton.jit
def channel_sums(y, partial, tiles, C: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr):
    """Sums of y and y² of each channel, to ``partial`` ``[programs, 2, C]``."""
    pid = tl.program_id(1)
    cols = tl.program_id(0) * COLS + tl.arange(0, COLS)
    sums = tl.zeros([ROWS, COLS], tl.float32)
    squares = tl.zeros([ROWS, COLS], tl.float32)
    for tile in tl.range(pid, tiles, tl.num_programs(1), num_stages=3):
        rows = tile * ROWS + tl.arange(0, ROWS)
        v = tl.load(y + rows[:, None] * C + cols[None, :]).to(tl.float32)
        sums += v
        squares += v * v
    at = partial + pid * 2 * C + cols
    tl.store(at, tl.sum(sums, axis=0))
    tl.store(at + C, tl.sum(squares, axis=0))


@triton.jit
def forward_coefficients(
    partial,
    programs,
    gamma,
    beta,
    running_mean,
    running_var,
    out,
    pixels,
    momentum,
    epsilon,
    C: tl.constexpr,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
):
    """``out`` ``[4, C]``: scale, shift, mean and 1/deviation; the running statistics move on."""
    cols = tl.program_id(0) * COLS + tl.arange(0, COLS)
    sums = tl.zeros([ROWS, COLS], tl.float32)
    squares = tl.zeros([ROWS, COLS], tl.float32)
    for start in range(0, programs, ROWS):
        rows = start + tl.arange(0, ROWS)
        at = partial + rows[:, None] * 2 * C + cols[None, :]
        sums += tl.load(at, mask=rows[:, None] < programs, other=0.0)
        squares += tl.load(at + C, mask=rows[:, None] < programs, other=0.0)
    mean = tl.sum(sums, axis=0) / pixels
    var = tl.maximum(tl.sum(squares, axis=0) / pixels - mean * mean, 0.0)
    inverse = 1.0 / tl.sqrt(var + epsilon)
    scale = tl.load(gamma + cols) * inverse
    tl.store(out + cols, scale)
    tl.store(out + C + cols, tl.load(beta + cols) - mean * scale)
    tl.store(out + 2 * C + cols, mean)
    tl.store(out + 3 * C + cols, inverse)
    old = tl.load(running_mean + cols)
    tl.store(running_mean + cols, old + momentum * (mean - old))
    old = tl.load(running_var + cols)
    unbiased = var * (pixels / (pixels - 1))
    tl.store(running_var + cols, old + momentum * (unbiased - old))


@triton.jit
def backward_coefficients(
    partial,
    programs,
    gamma,
    forward,
    dgamma,
    dbeta,
    out,
    pixels,
    C: tl.constexpr,
    SUMS: tl.constexpr,
    PRODUCT: tl.constexpr,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
):
    """``out`` ``[3, C]``: a, b and c of ``dy = a·g + b·y + c``; gamma's and beta's gradients.

    ``partial`` is ``[programs, SUMS, C]``: the sum of g first, that of g·y at PRODUCT.
    """
    cols = tl.program_id(0) * COLS + tl.arange(0, COLS)
    sums = tl.zeros([ROWS, COLS], tl.float32)
    products = tl.zeros([ROWS, COLS], tl.float32)
    for start in range(0, programs, ROWS):
        rows = start + tl.arange(0, ROWS)
        at = partial + rows[:, None] * SUMS * C + cols[None, :]
        sums += tl.load(at, mask=rows[:, None] < programs, other=0.0)
        products += tl.load(at + PRODUCT * C, mask=rows[:, None] < programs, other=0.0)
    total = tl.sum(sums, axis=0)
    mean = tl.load(forward + 2 * C + cols)
    inverse = tl.load(forward + 3 * C + cols)
    slope = (tl.sum(products, axis=0) - mean * total) * inverse
    tl.store(dbeta + cols, total)
    tl.store(dgamma + cols, slope)
    a = tl.load(gamma + cols) * inverse
    b = -a * inverse * slope / pixels
    tl.store(out + cols, a)
    tl.store(out + C + cols, b)
    tl.store(out + 2 * C + cols, -a * total / pixels - b * mean)


@triton.jit
def normalise(
    y,
    forward,
    shortcut,
    shortcut_forward,
    out,
    C: tl.constexpr,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
    SHORTCUT: tl.constexpr,
):
    """``relu(bn(y))``, or ``relu(bn(y) + shortcut)`` (1), or ``relu(bn(y) + bn(shortcut))`` (2)."""
    cols = tl.program_id(1) * COLS + tl.arange(0, COLS)
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    at = rows[:, None] * C + cols[None, :]
    scale = tl.load(forward + cols)[None, :]
    shift = tl.load(forward + C + cols)[None, :]
    v = tl.load(y + at).to(tl.float32) * scale + shift
    if SHORTCUT == 1:
        v += tl.load(shortcut + at).to(tl.float32)
    if SHORTCUT == 2:
        scale = tl.load(shortcut_forward + cols)[None, :]
        shift = tl.load(shortcut_forward + C + cols)[None, :]
        v += tl.load(shortcut + at).to(tl.float32) * scale + shift
    tl.store(out + at, tl.maximum(v, 0.0).to(out.dtype.element_ty))


@triton.jit
def gradient_sums(
    g,
    shortcut,
    output,
    y,
    y_other,
    forward,
    masked,
    partial,
    tiles,
    height,
    width,
    C: tl.constexpr,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
    MASK: tl.constexpr,
    SHORTCUT: tl.constexpr,
    SUMS: tl.constexpr,
):
    """Sums of the masked gradient, of it times y and (SUMS 3) times y_other of each channel.

    The mask is that of ``relu(bn(y))``, recomputed (MASK 1), or of ``output`` (2), where the
    gradient plus the shortcut's is also written to ``masked``; 0: g is masked already.
    """
    pid = tl.program_id(1)
    cols = tl.program_id(0) * COLS + tl.arange(0, COLS)
    sums = tl.zeros([ROWS, COLS], tl.float32)
    products = tl.zeros([ROWS, COLS], tl.float32)
    if SUMS == 3:
        others = tl.zeros([ROWS, COLS], tl.float32)
    if MASK == 1:
        scale = tl.load(forward + cols)[None, :]
        shift = tl.load(forward + C + cols)[None, :]
    for tile in tl.range(pid, tiles, tl.num_programs(1), num_stages=3):
        rows = tile * ROWS + tl.arange(0, ROWS)
        at = rows[:, None] * C + cols[None, :]
        v = tl.load(g + at).to(tl.float32)
        value = tl.load(y + at).to(tl.float32)
        if SHORTCUT == 1:
            v += tl.load(shortcut + at).to(tl.float32)
        if SHORTCUT == 2:
            column = rows % width
            line = rows // width
            row = line % height
            here = (column % 2 == 0) & (row % 2 == 0)
            half = ((line // height) * (height // 2) + row // 2) * (width // 2) + column // 2
            part = tl.load(
                shortcut + half[:, None] * C + cols[None, :], mask=here[:, None], other=0.0
            )
            v += part.to(tl.float32)
        if MASK == 1:
            v = tl.where(value * scale + shift > 0, v, 0.0)
        if MASK == 2:
            v = tl.where(tl.load(output + at) > 0, v, 0.0)
            rounded = v.to(masked.dtype.element_ty)
            tl.store(masked + at, rounded)
            v = rounded.to(tl.float32)
        sums += v
        products += v * value
        if SUMS == 3:
            others += v * tl.load(y_other + at).to(tl.float32)
    at_out = partial + pid * SUMS * C + cols
    tl.store(at_out, tl.sum(sums, axis=0))
    tl.store(at_out + C, tl.sum(products, axis=0))
    if SUMS == 3:
        tl.store(at_out + 2 * C, tl.sum(others, axis=0))


@triton.jit
def normalise_backward(
    g,
    y,
    forward,
    backward,
    dy,
    C: tl.constexpr,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
    MASK: tl.constexpr,
):
    """``a·g + b·y + c``; with MASK, g is first zeroed where ``relu(bn(y))`` is."""
    cols = tl.program_id(1) * COLS + tl.arange(0, COLS)
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    at = rows[:, None] * C + cols[None, :]
    a = tl.load(backward + cols)[None, :]
    b = tl.load(backward + C + cols)[None, :]
    c = tl.load(backward + 2 * C + cols)[None, :]
    v = tl.load(g + at).to(tl.float32)
    value = tl.load(y + at).to(tl.float32)
    if MASK:
        scale = tl.load(forward + cols)[None, :]
        shift = tl.load(forward + C + cols)[None, :]
        v = tl.where(value * scale + shift > 0, v, 0.0)
    tl.store(dy + at, (a * v + b * value + c).to(dy.dtype.element_ty))


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
    """Images as 2×2 patches of 16 channels (12 and zeros), two before and one after them of zeros.

    x has three channels and any strides, HEIGHT and WIDTH count patches; out is NHWC.
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
    """The 4×4 convolution over patches with the sums of y and y² of each channel.

    Four patches beside each other are 64 numbers in a row of memory, so the product is over four
    such runs; w is ``[N, 256]``.
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
    """3×3/2 max-pool over ``relu(bn(y))``: the y chosen and its place (0 to 8) in the window.

    HEIGHT and WIDTH are the output's. What is kept is y before normalisation: the next convolution
    normalises as it reads, and the sums of the batch normalisation's backward need y at the chosen
    pixels only.
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
            inside = ((r >= 0) & (q >= 0))[:, None]  # an even size ends within the last window
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
    """The gradient of ``stem_forward``'s weight, through the pool, ReLU and batch normalisation.

    g is that of the pool's output, HEIGHT and WIDTH are the convolution's. At each of its pixels
    the gradient is gathered from the up to four windows over it (nothing is added atomically),
    becomes ``a·g + b·y + c`` and goes straight into the product: it is never in memory.
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
                r = row // 2 + i  # even rows lie in one window, odd ones in two
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
