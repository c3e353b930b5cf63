"""Tasks as ``measure`` creates them, with a clock that tests control."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

import torch

from vflops.machine.ceilings.ceiling_plan import Item
from vflops.machine.ceilings.deadline import Clock, Deadline
from vflops.machine.ceilings.task import Task
from vflops.machine.devices import Device
from vflops.record.formats.measurement import Trial

CPU = Device(torch.device("cpu"))


@dataclass
class FakeClock:
    """A clock that advances by ``step_s`` whenever it is read."""

    step_s: float
    now_s: float = 0.0

    def __call__(self) -> float:
        self.now_s += self.step_s
        return self.now_s


def make_task(
    benchmark: str,
    case: str,
    precision: str | None = None,
    *,
    folder: Path = Path(),
    seconds: float = 0.2,
    device: Device = CPU,
    ranks: int = 2,
    start_s: float = 0.0,
    clock: Clock = time.monotonic,
    trials: list[Trial] | None = None,
) -> Task:
    """Return a task with time for a few trials."""
    deadline = Deadline(clock() + seconds, clock)
    return Task(
        item=Item(benchmark, case, precision, weight=1.0, start_s=start_s),
        device=device,
        deadline=deadline,
        overall_deadline=deadline,
        budget_s=seconds,
        seed=1,
        folder=folder,
        ranks=ranks,
        on_trial=(trials if trials is not None else []).append,
    )
