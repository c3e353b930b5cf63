"""Random operands: flat buffers that grow with the sizes tried, handed out as views."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from vflops.machine.ceilings.precisions import operand
from vflops.machine.devices import Device

_CPU_DISTINCT = 4_194_301
"""Random numbers drawn on a CPU before they repeat: drawing more takes longer than measuring.

Prime, so that no two rows of a matrix or image are alike."""


class Operands:
    """Buffers by name, on one device and in one type; never zeros, which may run faster."""

    def __init__(self, device: Device, dtype: torch.dtype, seed: int) -> None:
        self._place = device.place
        self._dtype = dtype
        self._distinct = _CPU_DISTINCT if device.is_cpu else None
        self._buffers: dict[str, torch.Tensor] = {}
        self.generator = torch.Generator(device.place).manual_seed(seed)

    def random(self, name: str, shape: Sequence[int]) -> torch.Tensor:
        """A view of normally distributed numbers; the same ones for the same name."""
        count = math.prod(shape)
        if not self._fits(name, count):
            self._buffers[name] = self._draw(count)
        return self._buffers[name][:count].view(*shape)

    def empty(
        self, name: str, shape: Sequence[int], dtype: torch.dtype | None = None
    ) -> torch.Tensor:
        """A view of a buffer for results, with anything in it."""
        count = math.prod(shape)
        if not self._fits(name, count):
            self._buffers[name] = torch.empty(count, dtype=dtype or self._dtype, device=self._place)
        return self._buffers[name][:count].view(*shape)

    def _fits(self, name: str, count: int) -> bool:
        if name in self._buffers and self._buffers[name].numel() >= count:
            return True
        self._buffers.pop(name, None)  # before the larger one is made, not after
        return False

    def _draw(self, count: int) -> torch.Tensor:
        distinct = min(count, self._distinct or count)
        drawn = torch.float64 if self._dtype is torch.float64 else torch.float32
        numbers = torch.empty(distinct, dtype=drawn, device=self._place)
        numbers = operand(numbers.normal_(generator=self.generator), self._dtype)
        if distinct == count:
            return numbers
        buffer = torch.empty(count, dtype=self._dtype, device=self._place)
        for start in range(0, count, distinct):
            part = buffer[start : start + distinct]
            part.copy_(numbers[: part.numel()])
        return buffer
