"""Named host buffers for batches, reused between batches and optionally pinned."""

from __future__ import annotations

import torch
from torch import Tensor

_MARGIN = 8
"""A buffer that grows gets this fraction more than it needs, because pinning memory is slow."""


class BatchMemory:
    """The buffers of one batch in flight; a loader has one per batch that it prefetches."""

    def __init__(self, *, pinned: bool = False) -> None:
        self._pinned = pinned
        self._buffers: dict[str, Tensor] = {}
        self._used: dict[str, int] = {}

    def buffer(self, name: str, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """Return the buffer ``name``, which is reused as long as shape and type do not change."""
        buffer = self._buffers.get(name)
        if buffer is None or buffer.shape != shape or buffer.dtype != dtype:
            buffer = torch.empty(shape, dtype=dtype, pin_memory=self._pinned)
            self._buffers[name] = buffer
        self._used.pop(name, None)
        return buffer

    def at_least(self, name: str, count: int, dtype: torch.dtype) -> Tensor:
        """Return a flat buffer of ``count`` elements or more, of which ``count`` are used.

        It grows when a batch needs more, with a margin, so that this happens seldom.
        """
        known = self._buffers.get(name)
        if known is None:
            size = count
        elif known.numel() < count:
            size = count + count // _MARGIN
        else:
            size = known.numel()
        buffer = self.buffer(name, (size,), dtype)
        self._used[name] = count  # only these need copying
        return buffer

    def used_part(self, tensor: Tensor) -> Tensor:
        """Return the part of a buffer that is used."""
        for name, buffer in self._buffers.items():
            if buffer is tensor:
                return tensor[: self._used.get(name, tensor.shape[0])]
        return tensor
