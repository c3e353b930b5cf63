"""Counting conventions: functions from an operation graph to integer counts, by name."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from vflops.counting.conventions.aiperf import AIPERF, AIPERF_ORIGINAL
from vflops.counting.conventions.base import Convention, Ops
from vflops.counting.conventions.executed import EXECUTED, EXECUTED_TORCH
from vflops.counting.conventions.hpcai500 import HPCAI500, HPCAI500_FC2
from vflops.counting.conventions.transformer import (
    CAUSAL,
    CAUSAL_ALL,
    MAXTEXT,
    MEGATRON,
    PALM,
    PALM_ALL,
)
from vflops.errors import unknown_name
from vflops.extensions import load_extensions

BUILT_IN: tuple[Convention, ...] = (
    HPCAI500,
    HPCAI500_FC2,
    AIPERF,
    AIPERF_ORIGINAL,
    EXECUTED,
    EXECUTED_TORCH,
)
"""The conventions that apply to every model; a score has the counts of all."""
TRANSFORMER: tuple[Convention, ...] = (PALM, PALM_ALL, CAUSAL, CAUSAL_ALL, MEGATRON, MAXTEXT)
"""The conventions that apply only to transformers on tokens."""

PUBLISHED_CONVENTION = HPCAI500.id
"""The convention of HPC AI500's workloads and of the networks that vflops provides."""
EXECUTED_CONVENTION = EXECUTED.id
"""The convention of MFU, and by default of all other workloads and models."""
ENTRY_POINTS = "vflops.rules"
"""The entry point group with which other packages add conventions."""


@cache
def conventions() -> Mapping[str, Convention]:
    """Return all conventions by id: the built-in ones first, then those of other packages."""
    built_in = {convention.id: convention for convention in (*BUILT_IN, *TRANSFORMER)}
    return {
        **built_in,
        **load_extensions(ENTRY_POINTS),
        **built_in,
    }  # built-in ones cannot be replaced


def convention(name: str) -> Convention:
    """Return the convention with the id ``name``, or raise ``UsageError``."""
    for built_in in (*BUILT_IN, *TRANSFORMER):  # searching for entry points is slow
        if built_in.id == name:
            return built_in
    if name not in conventions():
        raise unknown_name("counting convention", name, conventions())
    return conventions()[name]


__all__ = [
    "BUILT_IN",
    "ENTRY_POINTS",
    "EXECUTED_CONVENTION",
    "PUBLISHED_CONVENTION",
    "TRANSFORMER",
    "Convention",
    "Ops",
    "convention",
    "conventions",
]
