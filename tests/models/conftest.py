"""Fused networks without a GPU."""

from __future__ import annotations

import pytest

from tests.support.triton_kernels import INTERPRETED
from vflops.models.fused_trunk import FusedTrunk


@pytest.fixture(autouse=True)
def _nothing_to_compile(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels that Triton interprets need not be compiled, and there is no GPU to name."""
    if INTERPRETED:
        monkeypatch.setattr(FusedTrunk, "_compile_kernels", lambda trunk, x: None)
