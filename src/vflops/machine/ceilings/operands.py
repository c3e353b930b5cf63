"""Random operands: views of flat buffers that grow as larger sizes are tried."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from vflops.machine.ceilings.precisions import operand
from vflops.machine.devices import Device

_CPU_DISTINCT = 4_194_301
"""Number of distinct random numbers on a CPU: drawing more takes longer than measuring.

It is prime, so that no two rows of a matrix or image are equal."""


class Operands:
    """Named buffers of one type on one device; never zeros, which may be faster to compute with."""

    def __init__(self, device: Device, dtype: torch.dtype, seed: int) -> None:
        self._torch_device = device.torch_device
        self._dtype = dtype
        self._distinct = _CPU_DISTINCT if device.is_cpu else None
        self._buffers: dict[str, torch.Tensor] = {}
        self.generator = torch.Generator(device.torch_device).manual_seed(seed)

    def random(self, name: str, shape: Sequence[int]) -> torch.Tensor:
        """Return a view of normally distributed numbers; the same ones for the same name."""
        count = math.prod(shape)
        if not self._fits(name, count):
            self._buffers[name] = self._draw(count)
        return self._buffers[name][:count].view(*shape)

    def empty(
        self, name: str, shape: Sequence[int], dtype: torch.dtype | None = None
    ) -> torch.Tensor:
        """Return an uninitialised view of a buffer for results."""
        count = math.prod(shape)
        if not self._fits(name, count):
            self._buffers[name] = torch.empty(
                count, dtype=dtype or self._dtype, device=self._torch_device
            )
        return self._buffers[name][:count].view(*shape)

    def _fits(self, name: str, count: int) -> bool:
        if name in self._buffers and self._buffers[name].numel() >= count:
            return True
        self._buffers.pop(name, None)  # free it before the larger one is allocated
        return False

    def _draw(self, count: int) -> torch.Tensor:
        distinct = min(count, self._distinct or count)
        drawn = torch.float64 if self._dtype is torch.float64 else torch.float32
        numbers = torch.empty(distinct, dtype=drawn, device=self._torch_device)
        numbers = operand(numbers.normal_(generator=self.generator), self._dtype)
        if distinct == count:
            return numbers
        buffer = torch.empty(count, dtype=self._dtype, device=self._torch_device)
        for start in range(0, count, distinct):
            part = buffer[start : start + distinct]
            part.copy_(numbers[: part.numel()])
        return buffer
