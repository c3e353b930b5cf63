"""Losses that are read late, so that the host does not wait for the device after each step."""

from __future__ import annotations

import math
from collections import deque

import torch
from torch import Tensor

_AHEAD = 4
"""Steps that the host may submit to the accelerator before their losses are known."""


class Losses:
    """Holds each step's loss until the device has computed it."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._waiting: deque[tuple[int, Tensor, torch.Event | None]] = deque()

    def put(self, step: int, loss: Tensor) -> None:
        """Add the loss of ``step``, which is still on the device."""
        loss = loss.detach()
        if self._device.type == "cpu":
            self._waiting.append((step, loss, None))
            return
        host = torch.empty((), dtype=loss.dtype, pin_memory=True)
        host.copy_(loss, non_blocking=True)
        event = torch.Event(self._device)
        event.record()
        self._waiting.append((step, host, event))

    def ready(self, *, all: bool = False) -> list[tuple[int, float]]:
        """Return the losses that are known by now; with ``all``, wait for all of them."""
        known: list[tuple[int, float]] = []
        while self._waiting:
            step, loss, event = self._waiting[0]
            if event is not None:
                if all or len(self._waiting) > _AHEAD:
                    event.synchronize()
                elif not event.query():
                    break
            self._waiting.popleft()
            known.append((step, float(loss)))
        return known


def first_non_finite(losses: list[tuple[int, float]]) -> tuple[int, float] | None:
    """Return the first step whose loss is not finite, with its loss."""
    return next(((step, loss) for step, loss in losses if not math.isfinite(loss)), None)
