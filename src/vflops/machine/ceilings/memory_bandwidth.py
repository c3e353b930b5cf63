"""Bandwidth of the device's memory: copy and triad on arrays far larger than its caches.

Only bytes that the operation must read and write are counted. A CPU that fetches a line before it
writes it moves more, which a program does not benefit from.
"""

from __future__ import annotations

import math

import torch

from vflops.machine.ceilings.operands import Operands
from vflops.machine.ceilings.reference import relative_error
from vflops.machine.ceilings.setting_search import Search
from vflops.machine.ceilings.task import Task
from vflops.machine.ceilings.trial import Candidate, Kernel
from vflops.record.formats.measurement import Measurement

_CPU_SIZES = (4, 8, 16)
_SIZES = (16, 64, 256)
"""Array sizes in units of the last-level cache, so that little of an array is still cached.

A CPU's cache keeps what was used last, so smaller arrays suffice and take less time to fill."""
_MEMORY_SHARE = 0.2
"""Share of the free memory for one array."""
_FACTOR = 1.5
_TOLERANCES = {"copy": 0.0, "triad": 1e-6}
_CHECKED = 1 << 20
"""Elements compared in float64 at the array's start, middle and end; NaN is looked for in all."""


def measure(task: Task) -> Measurement:
    """Measure the bytes per second of ``a = b`` (copy) or ``a = b + s·c`` (triad) in fp32."""
    device, case = task.device, task.item.case
    operands = Operands(device, torch.float32, task.item_seed)
    search = Search(task, _TOLERANCES[case])
    cache_bytes = device.cache_bytes()
    max_bytes = int(_MEMORY_SHARE * device.free_bytes())
    wanted = [times * cache_bytes for times in (_CPU_SIZES if device.is_cpu else _SIZES)]
    sizes = [size_bytes for size_bytes in wanted if size_bytes <= max_bytes]
    for size_bytes in sizes or [max_bytes]:
        search.attempt(_candidate(operands, case, size_bytes // 4))
    return search.finish(None if sizes else "cached in part: no memory for larger arrays")


def _candidate(operands: Operands, case: str, count: int) -> Candidate:
    arrays = 2 if case == "copy" else 3

    def build() -> Kernel:
        return (_copy if case == "copy" else _triad)(operands, count)

    return Candidate(
        setting={"array_bytes": 4 * count, "dtype": "fp32"}, work=arrays * 4 * count, build=build
    )


def _copy(operands: Operands, count: int) -> Kernel:
    source = operands.random("b", (count,))
    target = operands.empty("a", (count,))

    def check() -> float:
        target.fill_(math.nan)
        target.copy_(source)
        return 0.0 if torch.equal(target, source) else relative_error(target, source)

    return Kernel(lambda: target.copy_(source), check)


def _triad(operands: Operands, count: int) -> Kernel:
    b = operands.random("b", (count,))
    c = operands.random("c", (count,))
    a = operands.empty("a", (count,))

    def call() -> None:
        torch.add(b, c, alpha=_FACTOR, out=a)

    def check() -> float:
        a.fill_(math.nan)
        call()
        if math.isnan(float(a.sum())):
            return math.nan
        parts = (
            slice(0, _CHECKED),
            slice(count // 2, count // 2 + _CHECKED),
            slice(-_CHECKED, None),
        )
        return max(
            relative_error(a[part], b[part].double() + _FACTOR * c[part].double()) for part in parts
        )

    return Kernel(call, check)
