"""The loss of each token from hidden states, without a table of logits in fp32.

On NVIDIA GPUs one kernel turns bf16 or fp16 logits into losses and, in the same memory, into
gradients; elsewhere these are operators of torch.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from vflops.models.kernels.product_operators import multiply

_MULTIPLE = 128
"""Products are fast if the number of their columns is a multiple of this."""


def token_losses(hidden: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
    """Return −ln p(target) of each token at least in fp32, from hidden states (tokens, width).

    ``weight`` (vocabulary, width) is that of the output layer.
    """
    dtype = operand_dtype(hidden)
    if hidden.device.type == "cuda" and dtype is not None:
        fused: tuple[Tensor, Tensor, Tensor] = _fused(
            hidden.to(dtype), weight.to(dtype), targets, keeps_gradient=torch.is_grad_enabled()
        )
        return fused[0]
    logits = functional.linear(hidden, weight)
    return functional.cross_entropy(wide(logits), targets, reduction="none")


def operand_dtype(x: Tensor) -> torch.dtype | None:
    """Return the type of operands in mixed precision on the device of ``x``; None without it."""
    kind = x.device.type
    # Not torch.amp.is_autocast_available, at which torch's compiler would cut the graph.
    is_mixed = kind != "meta" and torch.is_autocast_enabled(kind)
    return torch.get_autocast_dtype(kind) if is_mixed else None


def wide(x: Tensor) -> Tensor:
    """Return a tensor at least in fp32."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


@torch.library.custom_op("vflops::token_losses", mutates_args=())
def _fused(
    hidden: Tensor, weight: Tensor, targets: Tensor, keeps_gradient: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the losses and, if wanted, their gradients by the logits but for a factor by row."""
    from vflops.models.kernels import token_loss_kernel

    logits = multiply(hidden, _padded(weight), True)
    if keeps_gradient:
        losses, factors = token_loss_kernel.losses_and_gradients(logits, targets, len(weight))
        return losses, logits, factors
    losses = token_loss_kernel.losses(logits, targets, len(weight))
    return losses, logits.new_empty(0), torch.empty_like(losses)


@_fused.register_fake
def _(
    hidden: Tensor, weight: Tensor, targets: Tensor, keeps_gradient: bool
) -> tuple[Tensor, Tensor, Tensor]:
    tokens, columns = len(hidden), len(weight) + -len(weight) % _MULTIPLE
    gradients = hidden.new_empty((tokens, columns) if keeps_gradient else (0,))
    losses = hidden.new_empty(tokens, dtype=torch.float32)
    return losses, gradients, torch.empty_like(losses)


def _padded(weight: Tensor) -> Tensor:
    """Return the weight with rows of zeros, so that products with it are fast."""
    padding = -len(weight) % _MULTIPLE
    return functional.pad(weight, (0, 0, 0, padding)) if padding else weight


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
    hidden, weight, _, _ = inputs
    ctx.save_for_backward(hidden, weight, *output[1:])


def _backward(ctx: Any, slope: Tensor, *_: Tensor | None) -> tuple[Tensor | None, ...]:
    """Return the gradients; each token's loss may have its own ``slope``."""
    hidden, weight, gradients, factors = ctx.saved_tensors
    # The table of gradients is by far the largest tensor: the others are scaled, padded and cut.
    scale = (slope * factors)[:, None]
    hidden_gradient = multiply(gradients, _padded(weight), False) * scale
    weight_gradient = (gradients.t() @ (hidden * scale).to(hidden.dtype))[: len(weight)]
    return hidden_gradient.to(hidden.dtype), weight_gradient, None, None


_fused.register_autograd(_backward, setup_context=_save)
