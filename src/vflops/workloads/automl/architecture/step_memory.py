"""The memory of a training step, so that no candidate is proposed that cannot fit the device."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from vflops.record.files.document import Document
from vflops.workloads.automl.architecture import architecture_cost
from vflops.workloads.automl.architecture.layer_graph import Architecture


class StepMemory(Document):
    """``buffer/memory.json``: what a step takes, and what a rank has.

    The first worker that begins creates this file, and all workers propose by it, so that a
    proposal depends neither on the worker nor on its attempt.
    """

    schema_name: ClassVar[str] = "vflops.step-memory"

    worker: int = Field(ge=0)
    """The worker that created the file."""
    usable_bytes: int = Field(ge=1)
    """Memory that a rank can use."""
    measured: bool = False
    """Whether steps were measured on an accelerator; otherwise the memory is the sum of what a step
    has to keep."""
    factor: float = Field(default=1.0, gt=0)
    """Measured bytes of activations, relative to that sum for the same network."""
    fixed_bytes: int = Field(default=0, ge=0)
    """Measured bytes that depend neither on the batch nor on the sum, such as workspaces."""

    def fits(self, architecture: Architecture, batch: int, bytes_per_value: int) -> bool:
        """Whether a step with ``batch`` samples on a rank fits."""
        activations = architecture_cost.activation_bytes(architecture, batch, bytes_per_value)
        weights = architecture_cost.parameter_bytes(architecture)
        return activations * self.factor + weights + self.fixed_bytes <= self.usable_bytes
