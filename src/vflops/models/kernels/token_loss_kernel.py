"""Cross entropy of rows of logits as Triton kernels: losses, and gradients in place.

A program has one row. In bf16 it reads and writes the row once, 4 bytes per logit, where logits in
fp32 with separate operators move 20 or more: it writes exp(logit − base), since the sum by which
all are divided is only known at the end, and returns the inverse of the sum. Numbers in fp16 would
overflow, so that kernel reads the row twice and writes gradients.
"""

# Triton code is not typed Python, and its constants are in capitals.
# mypy: disable-error-code="import-not-found,import-untyped,no-untyped-def,untyped-decorator"
# mypy: disable-error-code="no-untyped-call,no-any-return"
# ruff: noqa: N803

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from vflops.models.kernels.launching import launch

_BLOCK = 4096
_LOWEST = tl.constexpr(-1e30)
"""Below every logit; finite, so that differences are numbers."""
_HEADROOM = tl.constexpr(20.0)
"""How far logits may be above the base: exp(20) times the vocabulary is far from overflow, and its
inverse times the slope of a token is far from underflow."""


def losses(logits: Tensor, targets: Tensor, vocabulary: int, *, block: int = _BLOCK) -> Tensor:
    """Return −ln softmax(logits)[target] of each row in fp32; columns from there on are padding."""
    found, _ = _launch(token_loss_kernel, logits, targets, vocabulary, block, GRADIENT=False)
    return found


def losses_and_gradients(
    logits: Tensor, targets: Tensor, vocabulary: int, *, block: int = _BLOCK
) -> tuple[Tensor, Tensor]:
    """Return the losses, and a factor of each row, both in fp32.

    ``logits`` are overwritten: times the factor of their row, they are the gradient of its loss.
    The padding gets 0.
    """
    if logits.dtype is torch.float16:
        found, factors = _launch(
            token_loss_kernel, logits, targets, vocabulary, block, GRADIENT=True
        )
        return found, factors.fill_(1.0)
    return _launch(single_pass_loss_kernel, logits, targets, vocabulary, block)


def _launch(
    kernel: Any, logits: Tensor, targets: Tensor, vocabulary: int, block: int, **options: bool
) -> tuple[Tensor, Tensor]:
    rows, columns = logits.shape
    found = torch.empty(rows, dtype=torch.float32, device=logits.device)
    factors = torch.empty_like(found)
    block = min(block, triton.next_power_of_2(columns))
    launch(
        kernel,
        (rows,),
        logits,
        targets,
        found,
        factors,
        vocabulary,
        columns,
        **options,
        BLOCK=block,
        num_warps=8,
    )
    return found, factors


@triton.jit
def single_pass_loss_kernel(
    logits, targets, losses, factors, vocabulary, columns, BLOCK: tl.constexpr
):
    """Write the loss of a row, exp(logit − base) in the place of its logits, and 1 / their sum."""
    row = tl.program_id(0).to(tl.int64)
    logits += row * columns
    lanes = tl.arange(0, BLOCK)
    target = tl.load(targets + row)
    score = tl.load(logits + target).to(tl.float32)
    tl.debug_barrier()  # the target's logit is read before it is overwritten
    base = tl.full((), _LOWEST, tl.float32)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, columns, BLOCK):
        column = start + lanes
        x = tl.load(logits + column, column < vocabulary, _LOWEST).to(tl.float32)
        peak = tl.max(x, 0)
        if peak > base + _HEADROOM:
            # Rare after the first block: what was written before gets the new base.
            factor = tl.exp(base - peak)
            total *= factor
            for earlier in range(0, start, BLOCK):
                place = logits + earlier + lanes
                y = tl.load(place).to(tl.float32) * factor
                tl.store(place, y.to(logits.dtype.element_ty))
            base = peak
        share = tl.exp(x - base)
        total += share
        tl.store(logits + column, share.to(logits.dtype.element_ty), column < columns)
    whole = tl.sum(total, 0)
    tl.store(losses + row, base + tl.log(whole) - score)
    tl.store(factors + row, 1.0 / whole)
    tl.debug_barrier()  # the target's number is written last
    slope = tl.exp(score - base) - whole
    tl.store(logits + target, slope.to(logits.dtype.element_ty))


@triton.jit
def token_loss_kernel(
    logits,
    targets,
    losses,
    factors,
    vocabulary,
    columns,
    GRADIENT: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Write the loss of a row, and its gradient in the place of the logits."""
    row = tl.program_id(0).to(tl.int64)
    logits += row * columns
    lanes = tl.arange(0, BLOCK)
    # Each lane has a maximum of its own: the program need not agree on one in every iteration.
    peak = tl.full((BLOCK,), _LOWEST, tl.float32)
    total = tl.zeros((BLOCK,), tl.float32)
    # Two blocks at a time: the sum is scaled once for both.
    for start in range(0, vocabulary, 2 * BLOCK):
        x = kept_logits(logits, start + lanes, vocabulary)
        y = kept_logits(logits, start + BLOCK + lanes, vocabulary)
        higher = tl.maximum(peak, tl.maximum(x, y))
        total = total * tl.exp(peak - higher) + (tl.exp(x - higher) + tl.exp(y - higher))
        peak = higher
    highest = tl.max(peak, 0)
    log_sum = highest + tl.log(tl.sum(total * tl.exp(peak - highest), 0))
    target = tl.load(targets + row)
    tl.store(losses + row, log_sum - tl.load(logits + target).to(tl.float32))
    if GRADIENT:
        tl.debug_barrier()  # the target's logit is read before it is overwritten
        for start in range(0, columns, BLOCK):
            column = start + lanes
            x = tl.load(
                logits + column, column < vocabulary, _LOWEST, eviction_policy="evict_first"
            )
            share = tl.exp(x.to(tl.float32) - log_sum)
            slope = (share - tl.where(column == target, 1.0, 0.0)).to(logits.dtype.element_ty)
            tl.store(logits + column, slope, column < columns, eviction_policy="evict_first")


@triton.jit
def kept_logits(logits, column, vocabulary):
    """Return logits in fp32; the cache should keep them, since they are read again."""
    x = tl.load(logits + column, column < vocabulary, _LOWEST, eviction_policy="evict_last")
    return x.to(tl.float32)
