"""Measures the peak speed of matrix products: square shapes, then shapes near the best one."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from vflops.machine.ceilings.ceiling_plan import Item
from vflops.machine.ceilings.interleave import interleave
from vflops.machine.ceilings.operands import Operands
from vflops.machine.ceilings.precisions import (
    Precision,
    fp32_arithmetic,
    multiply,
    precision_of,
    scaled_multiply,
)
from vflops.machine.ceilings.product_support import (
    emulation_caveat,
    product_unavailable_reason,
)
from vflops.machine.ceilings.reference import product_error
from vflops.machine.ceilings.setting_search import Search
from vflops.machine.ceilings.task import Task
from vflops.machine.ceilings.trial import Candidate, Kernel
from vflops.machine.devices import Device
from vflops.record.formats.measurement import Measurement

_CPU_SQUARES = (128, 256, 512, 1024, 2048, 4096, 8192)
_SQUARES = (4096, 8192, 16384, 2048, 12288, 6144, 1024, 512)
"""Sizes for an accelerator, those that most likely reach the peak first."""
_TILE = (256, 128)
"""Rows and columns of the result tile that a multiprocessor computes, up to a factor of 2."""
_MIN_LAYOUT_SPEED = 0.2
"""A layout that is slower than this share of the best speed is not tried at larger sizes."""
_MEMORY_SHARE = 0.8


@dataclass(frozen=True)
class _Variant:
    """The layout of the operands (N: row-major, T: column-major), and whether fp8 sums are fast."""

    layout: str
    fast: bool | None = None

    @property
    def name(self) -> str:
        sums = {None: "", True: "-fast", False: "-exact"}
        return self.layout + sums[self.fast]


def unavailable_reason(device: Device, item: Item) -> str | None:
    """Return why ``device`` has no matrix products in the item's precision, or None."""
    return product_unavailable_reason(device, precision_of(item))


def measure(task: Task) -> Measurement:
    """Measure the highest speed of matrix products, which have 2·M·N·K operations each."""
    precision = precision_of(task.item)
    bench = _Bench(task, precision)
    with fp32_arithmetic(precision.fp32_mode):
        bench.try_squares()
        bench.try_around_best()
        return bench.search.finish(emulation_caveat(task.device, precision))


class _Bench:
    def __init__(self, task: Task, precision: Precision) -> None:
        self.search = Search(task, precision.tolerance)
        self._device = task.device
        self._precision = precision
        self._operands = Operands(task.device, precision.dtype, task.item_seed)
        self._one = torch.ones((), device=task.device.torch_device)
        self._free_bytes = task.device.free_bytes()

    def try_squares(self) -> None:
        """Try all square shapes that fit into memory, in all layouts that are fast enough."""
        sizes = _CPU_SQUARES if self._device.is_cpu else _SQUARES
        variants = self._promising(sizes[0])
        for size in sizes[1:]:
            for variant in variants:
                self._attempt((size, size, size), variant)

    def try_around_best(self) -> None:
        """Try shapes with longer or shorter sides than the best, and shapes of whole waves of
        tiles."""
        best = self.search.best()
        if best is None:
            return
        m, n, k = (int(best.setting[side]) for side in "mnk")
        variant = next(v for v in self._variants() if v.name == best.setting["layout"])
        self.search.start_round()
        waves = whole_waves(self._device.multiprocessors(), k)
        for shape in interleave(waves, _neighbours(m, n, k)):
            self._attempt(shape, variant)

    def _variants(self) -> list[_Variant]:
        if self._precision.name == "fp8":  # torch requires a column-major second operand
            fast = (False,) if self._device.is_cpu else (True, False)
            return [_Variant("NT", mode) for mode in fast]
        return [_Variant(layout) for layout in ("NN", "NT", "TN")]

    def _promising(self, size: int) -> list[_Variant]:
        speeds = {
            variant: self._attempt((size, size, size), variant) or 0.0
            for variant in self._variants()
        }
        min_speed = _MIN_LAYOUT_SPEED * max(speeds.values())
        return [variant for variant, speed in speeds.items() if speed >= min_speed]

    def _attempt(self, shape: tuple[int, int, int], variant: _Variant) -> float | None:
        m, n, k = shape
        numbers = m * k + k * n + m * n
        if numbers * self._precision.result.itemsize > _MEMORY_SHARE * self._free_bytes:
            return None
        candidate = Candidate(
            setting={"m": m, "n": n, "k": k, "layout": variant.name},
            work=2 * m * n * k,
            build=lambda: self._kernel(shape, variant),
            family=variant.name,
        )
        return self.search.attempt(candidate)

    def _kernel(self, shape: tuple[int, int, int], variant: _Variant) -> Kernel:
        m, n, k = shape
        operands, precision = self._operands, self._precision
        a = operands.random("a", (k, m) if variant.layout[0] == "T" else (m, k))
        b = operands.random("b", (n, k) if variant.layout[1] == "T" else (k, n))
        a = a.t() if variant.layout[0] == "T" else a
        b = b.t() if variant.layout[1] == "T" else b
        out = operands.empty("out", (m, n), precision.result)

        def call() -> None:
            if variant.fast is None:
                multiply(precision, a, b, out)
            else:
                scaled_multiply(a, b, out, self._one, fast=variant.fast)

        def check() -> float:
            out.fill_(math.nan if out.is_floating_point() else torch.iinfo(out.dtype).min)
            call()
            return product_error(a, b, out, operands.generator)

        return Kernel(call, check)


def _neighbours(m: int, n: int, k: int) -> Iterator[tuple[int, int, int]]:
    """Yield shapes with some sides halved or doubled, those with the fewest changes first."""
    scales = sorted(
        itertools.product((1.0, 2.0, 0.5), repeat=3),
        key=lambda scale: (sum(abs(math.log2(side)) for side in scale), scale),
    )
    for rows, columns, depth in scales[1:]:
        shape = (int(m * rows), int(n * columns), int(k * depth))
        if len(set(shape)) > 1:  # square shapes have been tried
            yield shape


def whole_waves(multiprocessors: int | None, depth: int) -> Iterator[tuple[int, int, int]]:
    """Yield shapes whose tiles are whole waves, so that all multiprocessors are busy to the end."""
    if multiprocessors is None:
        return
    tile_rows = max(
        side for side in range(1, math.isqrt(multiprocessors) + 1) if multiprocessors % side == 0
    )
    tile_columns = multiprocessors // tile_rows
    for waves, k in itertools.product((2, 4, 1), (depth, depth // 2, 2 * depth)):
        yield (_TILE[0] * tile_rows * waves, _TILE[1] * tile_columns * waves, k)
