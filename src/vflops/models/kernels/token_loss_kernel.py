"""Cross entropy of rows of logits as one Triton kernel: losses, and gradients in place.

A program has one row. It reads the row twice, the second time mostly from the cache, and writes it
once: 6 bytes per logit in bf16, where logits in fp32 with separate operators move 20 or more.
"""

# Triton code is not typed Python, and its constants are in capitals.
# mypy: disable-error-code="import-not-found,import-untyped,no-untyped-def,untyped-decorator"
# mypy: disable-error-code="no-untyped-call,no-any-return"
# ruff: noqa: N803

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from vflops.models.kernels.launching import launch

_BLOCK = 4096
_LOWEST = tl.constexpr(-1e30)
"""Below every logit; finite, so that differences are numbers."""


def losses_and_gradients(
    logits: Tensor, targets: Tensor, vocabulary: int, *, keeps_gradient: bool, block: int = _BLOCK
) -> Tensor:
    """Return −ln softmax(logits)[target] of each row in fp32.

    Columns from ``vocabulary`` on are padding. With ``keeps_gradient``, ``logits`` are overwritten
    by the gradient of each row's loss; the padding gets 0.
    """
    rows, columns = logits.shape
    losses = torch.empty(rows, dtype=torch.float32, device=logits.device)
    launch(
        token_loss_kernel,
        (rows,),
        logits,
        targets,
        losses,
        vocabulary,
        columns,
        GRADIENT=keeps_gradient,
        BLOCK=min(block, triton.next_power_of_2(columns)),
        num_warps=16,
    )
    return losses


@triton.jit
def token_loss_kernel(
    logits, targets, losses, vocabulary, columns, GRADIENT: tl.constexpr, BLOCK: tl.constexpr
):
    """Write the loss of a row, and its gradient in the place of the logits."""
    row = tl.program_id(0).to(tl.int64)
    logits += row * columns
    lanes = tl.arange(0, BLOCK)
    # Each lane has a maximum of its own: the program need not agree on one in every iteration.
    peak = tl.full((BLOCK,), _LOWEST, tl.float32)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, vocabulary, BLOCK):
        column = start + lanes
        # The second loop reads the row again: the cache should keep it until then.
        x = tl.load(logits + column, column < vocabulary, _LOWEST, eviction_policy="evict_last")
        x = x.to(tl.float32)
        higher = tl.maximum(peak, x)
        total = total * tl.exp(peak - higher) + tl.exp(x - higher)
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
