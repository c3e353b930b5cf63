"""The int8 products of an x86 CPU without 8-bit dot products, on any machine."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

LACKS_VNNI = {"architecture": "x86_64", "avx2": True}
"""What torch reports of such a CPU."""


def saturating_product(a: Tensor, b: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Return a · b with neighbouring products added in 16 bits (``vpmaddubsw``).

    The instruction multiplies unsigned by signed numbers, so 128 is added to ``a`` first and its
    share is subtracted in the end.
    """
    padding = (0, a.shape[1] % 2)
    left = torch.nn.functional.pad(a.int() + 128, padding)
    right = torch.nn.functional.pad(b.t().int(), padding)
    products = left[:, None] * right[None]
    pairs = products.unflatten(-1, (-1, 2)).sum(-1).clamp(-(2**15), 2**15 - 1)
    result = (pairs.sum(-1) - 128 * b.int().sum(0)).int()
    return result if out is None else out.copy_(result)


def use_saturating_products(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make this process compute int8 products as such a CPU does."""
    monkeypatch.setattr(torch, "_int_mm", saturating_product)
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: LACKS_VNNI, raising=False)
