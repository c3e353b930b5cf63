"""Limits on the cost of an architecture."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import Field

from vflops.record.files.document import Data
from vflops.units import integer
from vflops.workloads.automl.architecture import architecture_cost
from vflops.workloads.automl.architecture.layer_graph import Architecture
from vflops.workloads.automl.architecture.step_memory import StepMemory


class Limits(Data):
    """Upper limits on the cost of a network; None means no limit."""

    parameters: int | None = Field(default=None, ge=1)
    operations_per_sample: int | None = Field(default=None, ge=1)
    """Operations of forward pass, backward pass and update, counted by AIPerf's rules."""
    memory_bytes: int | None = Field(default=None, ge=1)
    """Memory of a training step with ``batch`` samples."""
    depth: int | None = Field(default=None, ge=1)
    batch: int = Field(default=1, ge=1)
    bytes_per_value: int = Field(default=4, ge=1, le=8)
    """Bytes per activation value."""
    step: StepMemory | None = None
    """The memory of a rank; None if it is not known."""
    least_batch: int = Field(default=1, ge=1)
    """The batch of a rank with which a network must fit that memory."""


def is_within_limits(architecture: Architecture, limits: Limits) -> bool:
    """Whether ``architecture`` is within ``limits``."""
    return next(_excesses(architecture, limits), None) is None


def exceeded_limits(architecture: Architecture, limits: Limits) -> tuple[str, ...]:
    """Return one line for each limit that ``architecture`` exceeds."""
    return tuple(_excesses(architecture, limits))


def _excesses(architecture: Architecture, limits: Limits) -> Iterator[str]:
    """Yield one line per exceeded limit; the cheapest checks come first."""
    if limits.depth is not None and architecture.depth > limits.depth:
        yield _excess("depth", architecture.depth, limits.depth)
    if limits.parameters is not None and architecture.parameters > limits.parameters:
        yield _excess("parameters", architecture.parameters, limits.parameters)
    if limits.memory_bytes is not None:
        memory = architecture_cost.memory_bytes(architecture, limits.batch, limits.bytes_per_value)
        if memory > limits.memory_bytes:
            yield _excess("memory_bytes", memory, limits.memory_bytes)
    step, least = limits.step, limits.least_batch
    if step is not None and not step.fits(architecture, least, limits.bytes_per_value):
        yield f"memory: a step with {least} samples exceeds {integer(step.usable_bytes)} bytes"
    if limits.operations_per_sample is not None:
        total = architecture_cost.ops(architecture).total
        if total > limits.operations_per_sample:
            yield _excess("operations_per_sample", total, limits.operations_per_sample)


def _excess(name: str, value: int, limit: int) -> str:
    return f"{name}: {integer(value)} is more than {integer(limit)}"
