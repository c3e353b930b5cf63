"""The highest value of a ceiling that can be believed, by what is known about the device."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from vflops.record.formats.measurement import Measurement
from vflops.record.formats.system import Value
from vflops.results.data_sheets import DataSheet, data_sheet

FASTER_CONVOLUTION = 4.0
"""Convolutions are counted as direct ones. Winograd's F(4×4, 3×3) needs a quarter of their
multiplications (Lavin and Gray, 2015), and is used on units for single numbers, not matrices."""
UNKNOWN_DEVICE: dict[str, float] = {"FLOPS": 2e17, "B/s": 1e14, "IO/s": 1e10}
"""Limits for any device: about ten times the fastest accelerator that was announced by 2026."""

CPU_CLOCK_HZ = 6.5e9
"""No processor that is sold runs faster for longer than a moment."""
BOOST = 1.5
"""Several drivers report the highest clock without boost."""
VECTOR_FLOP: dict[str, int] = {
    "fp64": 32,
    "fp32": 64,
    "tf32": 64,
    "bf16": 128,
    "fp16": 128,
    "fp8": 128,
    "int8": 256,
}
"""Operations of a core per clock with two units of 512 bits, each a multiplication and an addition
per element; 16-bit and 8-bit products add two or four elements at once."""
MATRIX_FLOP: dict[str, int] = {"bf16": 2048, "fp16": 2048, "fp8": 4096, "int8": 4096}
"""The same with Intel's AMX: tiles of 16 × 16 results, 32 or 64 products each, in 16 clocks."""
CPU_MEMORY_B_S = 2e12
"""Memory of one socket: the fastest, HBM, has 1 to 1.6 TB/s."""
_MAX_SOCKETS = 8

_COMPUTE = ("gemm", "convolution")


Basis = Literal["data sheet", "processor", "any device"]


@dataclass(frozen=True)
class CeilingLimit:
    """The highest believable value, and what it follows from."""

    value: float
    source: str
    basis: Basis
    """What kind of limit it is: by the vendor, by the parts of a processor, or of any device."""


def ceiling_limit(item: Measurement, facts: Mapping[str, Value | None]) -> CeilingLimit:
    """Return the limit of a ceiling; ``facts`` describe the hardware that it was measured on."""
    kind, _, index = item.device.partition(":")
    if item.benchmark in (*_COMPUTE, "memory"):
        if kind == "cpu":
            return _cpu_limit(item, facts)
        name = facts.get(f"accelerator {index or 0} model")
        sheet = data_sheet(name) if isinstance(name, str) else None
        if sheet is not None:
            return _accelerator_limit(item, sheet)
    return CeilingLimit(UNKNOWN_DEVICE[item.unit], "no device is faster", "any device")


def _accelerator_limit(item: Measurement, sheet: DataSheet) -> CeilingLimit:
    if item.benchmark == "memory":
        return CeilingLimit(sheet.bytes_s * sheet.slack, sheet.source, "data sheet")
    precision = item.precision or ""
    on_vector_units = precision in ("fp64", "fp32") or not sheet.matrix_units
    faster = FASTER_CONVOLUTION if item.benchmark == "convolution" and on_vector_units else 1.0
    emulated = sheet.peak(precision)
    plain = sheet.flops.get(precision, 0.0) * sheet.slack * faster
    return CeilingLimit(max(emulated, plain), sheet.source, "data sheet")


def _cpu_limit(item: Measurement, facts: Mapping[str, Value | None]) -> CeilingLimit:
    sockets, cpus = (_number(facts, name) for name in ("cpu sockets", "logical cpus"))
    if item.benchmark == "memory":
        sockets = sockets or _MAX_SOCKETS
        return CeilingLimit(sockets * CPU_MEMORY_B_S, f"{sockets:g} × 2 TB/s", "processor")
    cpus = cpus or _number(facts, "usable cpus")
    if cpus is None:
        return CeilingLimit(UNKNOWN_DEVICE[item.unit], "no device is faster", "any device")
    per_clock = _flop_per_clock(item.precision or "", facts.get("instruction sets"))
    if item.benchmark == "convolution":
        per_clock = max(per_clock, FASTER_CONVOLUTION * VECTOR_FLOP["fp32"])
    clock_mhz = _number(facts, "cpu clock max")
    clock_hz = min(CPU_CLOCK_HZ, BOOST * 1e6 * clock_mhz) if clock_mhz else CPU_CLOCK_HZ
    source = f"{cpus:g} CPUs × {per_clock:g} operations per clock × {clock_hz / 1e9:.3g} GHz"
    return CeilingLimit(cpus * per_clock * clock_hz, source, "processor")


def _flop_per_clock(precision: str, instruction_sets: Value | None) -> float:
    """Return the most operations of a core per clock that its instruction sets allow."""
    vector = VECTOR_FLOP.get(precision, VECTOR_FLOP["int8"])
    if not isinstance(instruction_sets, str):
        return max(vector, MATRIX_FLOP.get(precision, 0))
    sets = instruction_sets.split()
    if "amx_tile" in sets or "sme" in sets:
        return max(vector, MATRIX_FLOP.get(precision, 0))
    if "avx2" in sets and "avx512f" not in sets:  # vectors of 256 bits
        return vector / 2
    return vector


def _number(facts: Mapping[str, Value | None], name: str) -> float | None:
    value = facts.get(name)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and value is not None and float(value) > 0 else None
