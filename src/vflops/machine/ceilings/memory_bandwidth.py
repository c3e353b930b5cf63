"""Measures the memory bandwidth of the device: copy and triad on arrays larger than its caches.

Only bytes that the operation must read and write are counted. A CPU that fetches a cache line
before it writes to the line moves more bytes, but a program does not benefit from them.
"""

from __future__ import annotations

import math

import torch

from vflops.machine.ceilings.operands import Operands
from vflops.machine.ceilings.reference import relative_error
from vflops.machine.ceilings.setting_search import Search
from vflops.machine.ceilings.task import Task
from vflops.machine.ceilings.trial import Candidate, Kernel
from vflops.machine.devices import Device
from vflops.record.formats.measurement import Measurement

_CPU_MULTIPLES = (4, 8, 16)
_MULTIPLES = (16, 64, 256)
"""Array sizes as multiples of the last-level cache, so that little of an array is still cached.

The cache of a CPU keeps the last used data, so smaller arrays suffice; they are faster to fill."""
_MEMORY_SHARE = 0.2
"""Maximum size of one array as a share of the free memory."""
_MIN_ARRAY_BYTES = 1 << 16
_FACTOR = 1.5
_TOLERANCES = {"copy": 0.0, "triad": 1e-6}
_CHECKED_ELEMENTS = 1 << 20
"""Number of elements that are compared in float64 at the start, the middle and the end of an array;
all elements are checked for NaN."""


def measure(task: Task) -> Measurement:
    """Measure the bytes per second of ``a = b`` (copy) or ``a = b + s·c`` (triad) in fp32."""
    device, case = task.device, task.item.case
    operands = Operands(device, torch.float32, task.item_seed)
    search = Search(task, _TOLERANCES[case])
    sizes, caveat = array_sizes(device)
    for size_bytes in sizes:
        search.attempt(_candidate(operands, case, size_bytes // 4))
    return search.finish(caveat)


def array_sizes(device: Device) -> tuple[list[int], str | None]:
    """Return the bytes of one array, for each size to try, and a caveat if they are too small.

    There are none if less than ``_MIN_ARRAY_BYTES`` are free for an array.
    """
    multiples = _CPU_MULTIPLES if device.is_cpu else _MULTIPLES
    wanted = [multiple * device.cache_bytes() for multiple in multiples]
    max_bytes = int(_MEMORY_SHARE * device.free_bytes())
    sizes = [size_bytes for size_bytes in wanted if size_bytes <= max_bytes]
    if sizes:
        return sizes, None
    largest = [max_bytes] if max_bytes >= _MIN_ARRAY_BYTES else []
    return largest, "cached in part: no memory for larger arrays"


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
            slice(0, _CHECKED_ELEMENTS),
            slice(count // 2, count // 2 + _CHECKED_ELEMENTS),
            slice(-_CHECKED_ELEMENTS, None),
        )
        return max(
            relative_error(a[part], b[part].double() + _FACTOR * c[part].double()) for part in parts
        )

    return Kernel(call, check)
