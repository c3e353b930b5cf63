"""Whether a device has correct matrix products in a precision: asked before any use or timing.

8-bit products are computed over the whole range of the operands. x86 CPUs without 8-bit dot
products add pairs of products in 16 bits, which saturate: 2 · 255 · 127 is more than 32 767. The
results are right for small operands, and wrong without any warning for large ones.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Mapping
from functools import cache

import torch

from vflops.machine.ceilings.precisions import (
    PRECISIONS,
    Precision,
    fp32_arithmetic,
    multiply,
    operand,
)
from vflops.machine.ceilings.reference import product_error, relative_error
from vflops.machine.devices import Device, first_line, threads

_SIZE = 256
_PROBE_SHAPES = (
    (32, 32, 64),
    (16, 16, 16),
    (48, 24, 30),
    (1, 16, 70),
    (32, 16, 4096),
    (_SIZE,) * 3,
)
"""Rows, columns and depth of the 8-bit products that are probed; all devices support the first."""
_PROBE_LAYOUTS = ("NT", "NN", "TN")
"""N is row-major, T column-major; all devices support the first."""
_ISA_LIMITS = ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA")
"""Variables that keep oneDNN, which computes torch's products on a CPU, from using instructions."""


def product_unavailable_reason(device: Device, precision: Precision) -> str | None:
    """Return why ``device`` has no correct matrix products in ``precision``, or None.

    Products are computed to find out: small ones, and for 8 bits also those of the largest
    operands, once per process. If the result of tf32 is as exact as fp32, the device has no tf32,
    since it did not round the operands.
    """
    try:
        error = _random_product_error(device, precision)
        if error <= precision.tolerance and precision.dtype.itemsize == 1:
            with threads(1):  # waking more threads would take longer than the work
                error = _full_range_error(device, precision)
    except (RuntimeError, TypeError) as refusal:
        return f"torch has no {precision.name} product on {device.name}: {first_line(refusal)}"
    if not error <= precision.tolerance:  # also true for NaN
        return _wrong_product(device, precision, error)
    if precision.fp32_mode == "tf32" and error < PRECISIONS["fp32"].tolerance:
        return f"{device.name} has no tf32: asked for it, torch's product is as exact as fp32"
    if precision.dtype is torch.int8 and emulation_caveat(device, precision):
        return f"{_missing_instructions(precision)}, and torch would emulate int8 products"
    return None


def emulation_caveat(device: Device, precision: Precision) -> str | None:
    """Return a caveat if the device emulates the precision in a wider one, else None."""
    if device.is_cpu and precision.cpu_flags and not _instructions(precision):
        return f"emulated: this CPU has no {precision.name} instructions"
    if (
        device.torch_device.type == "cuda"
        and precision.dtype is torch.bfloat16
        and not torch.cuda.is_bf16_supported(including_emulation=False)
    ):
        return "emulated: this GPU has no bf16 units"
    return None


def isa_limit() -> str | None:
    """Return the variable with which the user limits the CPU instructions of torch, or None."""
    return next((name for name in _ISA_LIMITS if os.environ.get(name)), None)


def _instructions(precision: Precision) -> tuple[str, ...]:
    """Return the instructions of this CPU for the precision; all if torch cannot tell."""
    capabilities: Mapping[str, object] = getattr(torch.cpu, "get_capabilities", dict)()
    return tuple(flag for flag in precision.cpu_flags if not capabilities or capabilities.get(flag))


def _missing_instructions(precision: Precision) -> str:
    *flags, last = precision.cpu_flags
    return f"this CPU has no {precision.name} instructions ({', '.join(flags)} or {last})"


def _wrong_product(device: Device, precision: Precision, error: float) -> str:
    reason = (
        f"torch computes wrong {precision.name} products on {device.name}: "
        f"relative error {error:.2g}, at most {precision.tolerance:g} expected"
    )
    if not device.is_cpu or not precision.cpu_flags:
        return reason
    instructions, variable = _instructions(precision), isa_limit()
    if not instructions:
        return f"{reason}; {_missing_instructions(precision)}"
    if variable is None:
        return reason
    limit = f"{variable}={os.environ[variable]}"
    return f"{reason}; {limit} keeps torch from using {' and '.join(instructions)}"


def _random_product_error(device: Device, precision: Precision) -> float:
    generator = torch.Generator(device.torch_device).manual_seed(0)
    numbers = torch.randn(2, _SIZE, _SIZE, device=device.torch_device, generator=generator)
    a, b = operand(numbers, precision.dtype)
    b = b.t()  # for fp8, torch requires a column-major second operand
    return product_error(a, b, _product(device, precision, a, b), generator)


@cache
def _full_range_error(device: Device, precision: Precision) -> float:
    """Return the largest relative error of products over the whole range of 8-bit operands.

    torch raises an error for shapes and layouts that a device does not support; only the first
    ones have to work, since training and ceilings handle the same error.
    """
    generator = torch.Generator().manual_seed(0)
    errors = []
    for layout, (rows, columns, depth) in itertools.product(_PROBE_LAYOUTS, _PROBE_SHAPES):
        a = _full_range(rows, depth, precision.dtype, generator)
        b = _full_range(columns, depth, precision.dtype, generator).t()
        expected = a.double() @ b.double()
        left = _laid_out(a.to(device.torch_device), layout[0])
        right = _laid_out(b.to(device.torch_device), layout[1])
        try:
            result = _product(device, precision, left, right).cpu()
            errors.append(relative_error(result, expected))
        except RuntimeError:
            if not errors:
                raise
    return max(errors, key=lambda error: (error != error, error))  # NaN is the largest


def _product(
    device: Device, precision: Precision, a: torch.Tensor, b: torch.Tensor
) -> torch.Tensor:
    out = torch.empty(len(a), b.shape[1], dtype=precision.result, device=device.torch_device)
    with fp32_arithmetic(precision.fp32_mode):
        multiply(precision, a, b, out)
    return out


def _laid_out(matrix: torch.Tensor, layout: str) -> torch.Tensor:
    return matrix.contiguous() if layout == "N" else matrix.t().contiguous().t()


def _full_range(
    rows: int, depth: int, dtype: torch.dtype, generator: torch.Generator
) -> torch.Tensor:
    """Return rows of the largest number, of the smallest, of both in turn, and of random ones."""
    bits = torch.randint(-128, 128, (rows, depth), dtype=torch.int8, generator=generator)
    range_of = torch.iinfo(dtype) if dtype is torch.int8 else torch.finfo(dtype)
    numbers = bits.view(dtype).double().nan_to_num(range_of.max)
    numbers[0::4], numbers[1::4] = range_of.max, range_of.min
    numbers[2::4, 0::2], numbers[2::4, 1::2] = range_of.max, range_of.min
    return numbers.to(dtype)
