"""torch, imported when it is asked for; a stand-in that gives the reason where it is not there."""

from __future__ import annotations

import importlib
from typing import Any

from vflops.system.probe import Absent


class NoTorch:
    """Answers every question to torch with the reason why there is none."""

    def __init__(self, reason: str) -> None:
        self._reason = reason

    def __getattr__(self, name: str) -> Any:
        raise Absent(self._reason)


def load_torch(wanted: bool) -> Any:
    """The module ``torch``, or its stand-in."""
    if not wanted:
        return NoTorch("torch was not asked")
    try:
        return importlib.import_module("torch")
    except Exception as error:  # a broken build fails in many ways, OSError among them
        return NoTorch(f"torch cannot be imported: {error}")
