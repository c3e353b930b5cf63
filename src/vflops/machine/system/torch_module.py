"""Imports torch on demand; if it is absent, a stand-in raises the reason."""

from __future__ import annotations

import importlib
from typing import Any

from vflops.machine.probe import AbsentError


class NoTorch:
    """Raises ``AbsentError`` with the reason for every attribute of torch."""

    def __init__(self, reason: str) -> None:
        self._reason = reason

    def __getattr__(self, name: str) -> Any:
        raise AbsentError(self._reason)


def accelerator_kind(torch: Any) -> str:
    """Return the kind of accelerator: ``cuda``, ``cuda (ROCm)``, ``xpu``, ``mps`` …"""
    device = torch.accelerator.current_accelerator()
    if device is None or not torch.accelerator.is_available():
        raise AbsentError("torch sees no accelerator")
    return "cuda (ROCm)" if device.type == "cuda" and torch.version.hip else str(device.type)


def load_torch(wanted: bool) -> Any:
    """Return the module ``torch``, or a stand-in if it is not wanted or cannot be imported."""
    if not wanted:
        return NoTorch("torch was not imported")
    try:
        return importlib.import_module("torch")
    except Exception as error:  # a broken build fails in many ways, including OSError
        return NoTorch(f"torch cannot be imported: {error}")
