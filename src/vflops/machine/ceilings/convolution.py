"""Measures the peak speed of convolutions over the shapes of the workloads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from vflops.machine.ceilings.ceiling_plan import Item
from vflops.machine.ceilings.convolution_shapes import ConvolutionShape, search_order
from vflops.machine.ceilings.operands import Operands
from vflops.machine.ceilings.precisions import (
    Precision,
    fp32_arithmetic,
    precision_of,
)
from vflops.machine.ceilings.product_support import (
    emulation_caveat,
    product_unavailable_reason,
)
from vflops.machine.ceilings.reference import convolution_error
from vflops.machine.ceilings.setting_search import Search
from vflops.machine.ceilings.task import Task
from vflops.machine.ceilings.trial import Candidate, Kernel
from vflops.machine.devices import Device, first_line
from vflops.record.formats.measurement import Measurement

_CPU_CALL_S, _CALL_S = 4e-3, 1e-3
"""Batches grow until a call takes about this long."""
_MAX_IMAGES = 256
_MEMORY_SHARE = 0.1


def unavailable_reason(device: Device, item: Item) -> str | None:
    """Return why the device has no convolutions in the item's precision, or None.

    A device may have matrix products in a precision, but no convolutions.
    """
    precision = precision_of(item)
    no_product = product_unavailable_reason(device, precision)
    if no_product:
        return no_product
    absent = f"torch has no {precision.name} convolution on {device.name}"
    try:
        x, weight = torch.ones(2, 8, 8, 3, 3, device=device.torch_device).to(precision.dtype)
        out = torch.ops.aten.convolution(x, weight, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1)
    except (RuntimeError, TypeError) as refusal:
        return f"{absent}: {first_line(refusal)}"
    if not out.is_floating_point() and out.dtype is not precision.result:
        return f"{absent} with 32-bit sums: its results are {precision.name} and overflow"
    return None


def measure(task: Task) -> Measurement:
    """Measure the highest speed of the item's direction over all shapes, in channels-last layout.

    Every direction does 2·N·Cout·Ho·Wo·Cin·K² operations.
    """
    precision = precision_of(task.item)
    bench = _Bench(task, precision)
    with fp32_arithmetic(precision.fp32_mode), _cudnn_autotuning():
        for shape in search_order(densest_first=not task.device.is_cpu):
            bench.attempt(shape)
        return bench.search.finish(emulation_caveat(task.device, precision))


class _Bench:
    """Tries convolutions of one direction in one precision."""

    def __init__(self, task: Task, precision: Precision) -> None:
        self.search = Search(task, precision.tolerance)
        self._direction = task.item.case
        self._device = task.device
        self._dtype = precision.dtype
        self._operands = Operands(task.device, precision.dtype, task.item_seed)
        self._free_bytes = task.device.free_bytes()

    def attempt(self, shape: ConvolutionShape) -> None:
        family = f"{shape.kernel}x{shape.kernel}/{shape.stride}"
        batch = self._batch(shape, family)
        self.search.attempt(
            Candidate(
                setting=shape.setting(batch),
                work=batch * shape.flops,
                build=lambda: self._kernel(shape, batch),
                family=family,
            )
        )

    def _batch(self, shape: ConvolutionShape, family: str) -> int:
        """Return a batch size, a power of two: large enough for a long call, within the memory."""
        image_s = shape.flops * self.search.costs.growth_s(family)
        initial = (
            1.0 if self._device.is_cpu else float(_MAX_IMAGES)
        )  # used until a call has been timed
        call_s = _CPU_CALL_S if self._device.is_cpu else _CALL_S
        images = call_s / image_s if image_s else initial
        image_bytes = shape.numbers * self._dtype.itemsize
        images = min(images, _MAX_IMAGES, _MEMORY_SHARE * self._free_bytes / image_bytes)
        return 1 << max(int(images).bit_length() - 1, 0)

    def _kernel(self, shape: ConvolutionShape, batch: int) -> Kernel:
        operands, direction = self._operands, self._direction
        kernel = shape.kernel
        x = _channels_last(operands, "x", batch, shape.height, shape.width, shape.channels_in)
        weight = _channels_last(
            operands, "weight", shape.channels_out, kernel, kernel, shape.channels_in
        )
        gradient = _channels_last(
            operands, "gradient", batch, shape.height_out, shape.width_out, shape.channels_out
        )
        call = call_of(direction, shape, x, weight, gradient)

        def check() -> float:
            return convolution_error(
                shape, direction, x, weight, gradient, call(), operands.generator
            )

        return Kernel(call, check)


def _channels_last(
    operands: Operands, name: str, count: int, height: int, width: int, channels: int
) -> torch.Tensor:
    return operands.random(name, (count, height, width, channels)).permute(0, 3, 1, 2)


def call_of(
    direction: str,
    shape: ConvolutionShape,
    x: torch.Tensor,
    weight: torch.Tensor,
    gradient: torch.Tensor,
) -> Callable[[], torch.Tensor]:
    """Return a function that computes the output or the gradient of the direction."""
    geometry = ([shape.stride] * 2, [shape.padding] * 2, [1, 1], False, [0, 0], 1)
    if direction == "forward":
        return lambda: torch.ops.aten.convolution(x, weight, None, *geometry)
    output = 0 if direction == "input-gradient" else 1
    mask = [output == 0, output == 1, False]
    return lambda: torch.ops.aten.convolution_backward(gradient, x, weight, None, *geometry, mask)[
        output
    ]


@contextmanager
def _cudnn_autotuning() -> Iterator[None]:
    """Let cuDNN try its algorithms on each new shape for the duration of a block."""
    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = True
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = before
