"""Names of precisions and benchmarks, used alike in code, on the command line and in files."""

from __future__ import annotations

PRECISIONS: dict[str, str] = {
    "fp64": "IEEE double",
    "fp32": "IEEE single: the result is that exact, however the library computes it",
    "tf32": "fp32 operands rounded to 10 bits of mantissa, fp32 sums",
    "bf16": "bfloat16 operands, fp32 sums",
    "fp16": "IEEE half operands, fp32 sums where the device has them",
    "fp8": "float8 e4m3 operands with a scale, higher-precision sums",
    "int8": "8-bit integers, exact sums in 32 bits",
}

BENCHMARKS: dict[str, str] = {
    "gemm": "matrix product, searched over shapes for its peak",
    "convolution": "forward, input gradient and weight gradient on the workloads' shapes",
    "memory": "copy and triad",
    "transfer": "host to device and back",
    "all-reduce": "between local ranks, over message sizes",
    "storage": "sequential and random read, write with fsync, on the run's file system",
    "all-reduce-modes": "averages over ranks by mode and precision; only on request",
}

OPT_IN_BENCHMARKS = ("all-reduce-modes",)
"""Benchmarks that are run only if they are requested by name."""
