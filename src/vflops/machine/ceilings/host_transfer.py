"""Measures copies between the device and pinned or pageable host memory."""

from __future__ import annotations

import math

import torch

from vflops.machine.ceilings.ceiling_plan import Item
from vflops.machine.ceilings.operands import Operands
from vflops.machine.ceilings.reference import relative_error
from vflops.machine.ceilings.setting_search import Search
from vflops.machine.ceilings.task import Task
from vflops.machine.ceilings.trial import Candidate, Kernel
from vflops.machine.devices import Device
from vflops.record.formats.measurement import Measurement

_SIZES_BYTES = tuple(1 << power for power in (24, 26, 28, 30))
_MEMORY_SHARE = 0.2


def unavailable_reason(device: Device, item: Item) -> str | None:
    """Return why nothing can be copied to ``device``, or None."""
    return "the device is the CPU: there is nothing to copy to" if device.is_cpu else None


def measure(task: Task) -> Measurement:
    """Measure the bytes per second of copies in the item's direction."""
    search = Search(task, tolerance=0.0)
    operands = Operands(task.device, torch.float32, task.item_seed)
    max_bytes = _MEMORY_SHARE * task.device.free_bytes()
    for size_bytes in _SIZES_BYTES:
        if size_bytes <= max_bytes:
            search.attempt(_candidate(operands, task.item.case, size_bytes // 4))
    return search.finish()


def _candidate(operands: Operands, case: str, count: int) -> Candidate:
    return Candidate(
        setting={"size_bytes": 4 * count},
        work=4 * count,
        build=lambda: _kernel(operands, case, count),
    )


def _kernel(operands: Operands, case: str, count: int) -> Kernel:
    pinned = case.endswith("pinned")
    random = operands.random("device", (count,))
    host = torch.empty(count, pin_memory=pinned)
    if case.startswith("host"):
        host.copy_(random)
        source, target = host, operands.empty("target", (count,))
    else:
        source, target = random, host

    def call() -> None:
        target.copy_(source, non_blocking=pinned)

    def check() -> float:
        target.fill_(math.nan)
        call()
        received, sent = target.to(random.device), source.to(random.device)
        return 0.0 if torch.equal(received, sent) else relative_error(received, sent)

    return Kernel(call, check)
