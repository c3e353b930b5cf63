"""What MLPs and experts compute between their linear layers."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional

from vflops.models.language.token_losses import wide

_GELU_LINEAR = 2 * math.sqrt(2 / math.pi)
_GELU_CUBIC = 0.044715 * _GELU_LINEAR


def activated(up: Tensor, gate: Tensor | None) -> Tensor:
    """Return GELU of ``up``, or SwiGLU if there is a gate (Shazeer 2020)."""
    return gelu(up) if gate is None else functional.silu(gate) * up


def gelu(x: Tensor) -> Tensor:
    """Return GELU with its tanh approximation (Hendrycks and Gimpel 2016).

    On GPUs it is x times a sigmoid, the same function, since tanh takes longer there than reading
    and writing the numbers.
    """
    if x.device.type != "cuda":
        return functional.gelu(x, approximate="tanh")
    y = wide(x)
    return (y * torch.sigmoid(y * (_GELU_LINEAR + _GELU_CUBIC * y.square()))).to(x.dtype)
