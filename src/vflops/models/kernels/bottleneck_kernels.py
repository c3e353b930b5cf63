"""Triton kernels of the fused ResNet: 1×1 convolutions and batch normalisation.

Activations are rows of pixels, ``[pixels, channels]`` (NHWC). Batch normalisation is
``scale·y + shift`` for each channel in the forward pass and ``a·g + b·y + c`` in the backward pass,
so it can be fused into the kernel that reads or writes the tensor. The parameter ``forward``
``[4, C]`` holds scale, shift, mean and 1/deviation of each channel; ``backward`` or
``coefficients`` ``[3, C]`` holds a, b and c. C, the number of channels, is constant only where a
kernel needs it, so that fewer kernels have to be compiled. Import this module only if Triton is
installed.
"""

# Triton code is not typed Python, and its constants are in capitals.
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
    """Compute ``y = input @ wᵀ`` and the sums of y and y² for each channel.

    ``input`` is x, or ``relu(scale·x + shift)`` with PROLOGUE. The sums are written to
    ``partial`` ``[programs, 2, N]``.
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
        # Transposed, so that a thread has many pixels of few channels: the sums need almost no
        # shuffles, and normalised inputs reach the tensor cores through shared memory.
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
    """Compute both gradients of a 1×1 convolution and its batch normalisation in one pass.

    ``dy = a·g + b·y + c`` is the gradient of the convolution's output. With OWN_MASK, g is first
    set to 0 where ``relu(bn(y))`` is 0; otherwise it must be masked already. dx is ``dy @ w`` plus
    the gradient of the shortcut (SHORTCUT 1: same shape, 2: every second pixel); with MASK, it is
    set to 0 where the input is 0. Of the sums of dx, dx·y_before and dx·y_other for each channel,
    the first SUMS are written to ``partial``. ``dw_partial`` ``[programs, N, K]`` adds up to the
    gradient of the weight.
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
def channel_sums(y, partial, tiles, C, ROWS: tl.constexpr, COLS: tl.constexpr):
    """Write the sums of y and y² for each channel to ``partial`` ``[programs, 2, C]``."""
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
    C,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
):
    """Write scale, shift, mean and 1/deviation to ``out`` ``[4, C]``; update running statistics."""
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
    C,
    SUMS: tl.constexpr,
    PRODUCT: tl.constexpr,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
):
    """Write a, b and c of ``dy = a·g + b·y + c`` to ``out`` ``[3, C]``, and dgamma and dbeta.

    ``partial`` is ``[programs, SUMS, C]``: the sum of g is first, that of g·y is at PRODUCT.
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
    C,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
    SHORTCUT: tl.constexpr,
):
    """Compute ``relu(bn(y) + s)``: s is 0, the shortcut (SHORTCUT 1) or bn of the shortcut (2)."""
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
    C,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
    MASK: tl.constexpr,
    SHORTCUT: tl.constexpr,
    SUMS: tl.constexpr,
):
    """Sum the masked gradient for each channel: alone, times y, and (SUMS 3) times y_other.

    With MASK 0, g is masked already. With MASK 1, it is set to 0 where ``relu(bn(y))``, which is
    recomputed, is 0. With MASK 2, the sum of g and the shortcut's gradient is set to 0 where
    ``output`` is 0, and is also written to ``masked``.
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
    C,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
    MASK: tl.constexpr,
):
    """Compute ``a·g + b·y + c``; with MASK, g is first set to 0 where ``relu(bn(y))`` is 0."""
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
