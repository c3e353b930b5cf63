"""The input of a benchmark: one item of the plan, the device and the deadlines."""

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
    """An item to measure, with everything that a benchmark needs."""

    item: Item
    device: Device
    deadline: Deadline
    """Deadline of this item; except for the first, no trial is started that would exceed it."""
    overall_deadline: Deadline
    """Deadline of all items together."""
    budget_s: float
    seed: int
    folder: Path
    ranks: int
    on_trial: Callable[[Trial], None]

    @property
    def item_seed(self) -> int:
        """A seed for this item that does not depend on the other items."""
        name = f"{self.seed}/{'/'.join(str(part) for part in self.item.key)}"
        return int.from_bytes(hashlib.sha256(name.encode()).digest()[:6], "big")

    def out_of_time(self, device: str | None = None) -> Measurement:
        """Return a measurement without a value, because no time is left for the item."""
        name = self.device.name if device is None else device
        reason = self.out_of_time_reason
        return self.item.absent_measurement(name, reason, ran_out_of_time=True)

    @property
    def out_of_time_reason(self) -> str:
        """The reason to record if there is no time left for the item."""
        return f"time budget of {self.budget_s:g} s used up; raise micro.budget_s"

    def measurement(self, samples: Sequence[float], **facts: Any) -> Measurement:
        """Return the item's measurement on the task's device."""
        return self.item.measurement(self.device.name, samples, **facts)

    def absent_measurement(self, reason: str) -> Measurement:
        """Return a measurement of the item without a value, with the reason."""
        return self.item.absent_measurement(self.device.name, reason)
