"""Lets the second rank of a worker run out of memory in the candidates of ``SHORT_OF_MEMORY``.

Python imports this module when it starts, if its folder is on ``PYTHONPATH``.
"""

from __future__ import annotations

import os
from typing import Any


def _plant(candidates: list[str]) -> None:
    import torch

    from vflops.train.loop import Loop

    run = Loop.run

    def short(self: Any) -> Any:
        folder = getattr(self.context, "folder", None)
        if folder is not None and folder.name in candidates:
            message = "CUDA out of memory. Tried to allocate 9 GiB"
            raise torch.OutOfMemoryError(message)
        return run(self)

    Loop.run = short  # type: ignore[method-assign]


if os.environ.get("RANK") == "1" and "VFLOPS_LAUNCHER" in os.environ:
    _plant(os.environ.get("SHORT_OF_MEMORY", "").split(","))
