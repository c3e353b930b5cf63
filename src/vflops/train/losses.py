"""Losses read late: the device is not waited for, and the host does not run far ahead of it."""

from __future__ import annotations

import math
from collections import deque

import torch
from torch import Tensor

_AHEAD = 4
"""Steps that the host may have given to the accelerator before their losses are known."""


class Losses:
    """Takes each step's loss and gives it back once the device has computed it."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._waiting: deque[tuple[int, Tensor, torch.Event | None]] = deque()

    def put(self, step: int, loss: Tensor) -> None:
        """Remember the loss of ``step``, still on the device."""
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
        """The losses that are known by now; with ``all`` the device is waited for."""
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


def first_bad(losses: list[tuple[int, float]]) -> tuple[int, float] | None:
    """The first step whose loss is not a finite number."""
    return next(((step, loss) for step, loss in losses if not math.isfinite(loss)), None)
