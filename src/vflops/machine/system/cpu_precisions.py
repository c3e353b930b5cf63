"""The precisions that a GPU or CPU has instructions for."""

from __future__ import annotations

from collections.abc import Set

# The first compute capability with the arithmetic, from the CUDA C programming guide.
_CUDA = {
    "fp64": (1, 3),
    "fp32": (1, 0),
    "tf32": (8, 0),
    "bf16": (8, 0),
    "fp16": (5, 3),
    "fp8": (8, 9),
    "int8": (6, 1),
}
_CPU = {
    "bf16": {"avx512_bf16", "amx_bf16", "bf16"},
    "fp16": {"avx512_fp16", "amx_fp16", "asimdhp"},
    "int8": {"avx512_vnni", "avx_vnni", "amx_int8", "i8mm"},
}


def cuda_precisions(major: int, minor: int) -> str:
    """Return ``fp64 fp32 tf32 bf16 fp16 fp8 int8`` for compute capability 9.0."""
    return " ".join(name for name, first in _CUDA.items() if (major, minor) >= first)


def cpu_precisions(flags: Set[str]) -> str:
    """Return ``fp64 fp32`` and the narrower precisions that the CPU has instructions for."""
    return " ".join(["fp64", "fp32", *(name for name, marks in _CPU.items() if marks & flags)])
