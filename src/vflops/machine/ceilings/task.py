"""The input of a benchmark: one item of the plan, the device and the deadline."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vflops.machine.ceilings.ceiling_plan import Item
from vflops.machine.ceilings.deadline import Deadline
from vflops.machine.devices import Device
from vflops.record.formats.measurement import Measurement, Trial


@dataclass(frozen=True)
class Task:
    """One item that is being measured."""

    item: Item
    device: Device
    deadline: Deadline
    """Of this item: no trial that would exceed it is started, except the first."""
    overall_deadline: Deadline
    """The deadline of all items together."""
    budget_s: float
    seed: int
    folder: Path
    ranks: int
    on_trial: Callable[[Trial], None]

    @property
    def item_seed(self) -> int:
        """A seed for this item, independent of what ran before it."""
        name = f"{self.seed}/{'/'.join(str(part) for part in self.item.key)}"
        return int.from_bytes(hashlib.sha256(name.encode()).digest()[:6], "big")

    @property
    def out_of_time_reason(self) -> str:
        """The reason for an item that could not be started."""
        return f"time budget of {self.budget_s:g} s used up; raise micro.budget_s"

    def measurement(self, samples: Sequence[float], **facts: Any) -> Measurement:
        """Return the item's measurement on the task's device."""
        return self.item.measurement(self.device.name, samples, **facts)

    def absent_measurement(self, reason: str) -> Measurement:
        """Return the item's measurement without a value, with the reason."""
        return self.item.absent_measurement(self.device.name, reason)
