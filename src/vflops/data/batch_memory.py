"""Memory for batches: lent out by name, kept between batches, pinned where that helps."""

from __future__ import annotations

import torch
from torch import Tensor


class BatchMemory:
    """Buffers of one batch in flight; a loader has as many rooms as batches ahead."""

    def __init__(self, *, pinned: bool = False) -> None:
        self._pinned = pinned
        self._buffers: dict[str, Tensor] = {}
        self._used: dict[str, int] = {}

    def lend(self, name: str, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """The buffer ``name``; the same memory as long as shape and type stay."""
        held = self._buffers.get(name)
        if held is None or held.shape != shape or held.dtype != dtype:
            held = torch.empty(shape, dtype=dtype, pin_memory=self._pinned)
            self._buffers[name] = held
        self._used.pop(name, None)
        return held

    def fill(self, name: str, used: int) -> None:
        """Say that only the first ``used`` elements of ``name`` matter: the rest is not copied."""
        self._used[name] = used

    def used(self, tensor: Tensor) -> Tensor:
        """The part of a lent buffer that matters."""
        for name, held in self._buffers.items():
            if held is tensor:
                return tensor[: self._used.get(name, tensor.shape[0])]
        return tensor
