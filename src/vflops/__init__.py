"""Measures how fast a computer really trains AI, in valid FLOPS.

``__all__`` is the interface for scripts and notebooks. Its names are loaded on first use, so that
``import vflops`` is fast and does not import torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vflops.api import Comparison, Count, Run, VflopsError, compare, count

__version__ = "0.3.0"

__all__ = ["Comparison", "Count", "Run", "VflopsError", "__version__", "compare", "count"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from vflops import api

    return getattr(api, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
