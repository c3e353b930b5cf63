"""Settings of launching: where jobs run, and how much of a node a rank takes."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from vflops.config.section import Section


class LaunchSettings(Section):
    """Where the jobs of an ensemble run."""

    on: Literal["local", "slurm", "pbs", "lsf", "flux"] = "local"
    start: Literal["together", "apart"] = "together"
    """With SLURM: all jobs in one allocation, or each submitted by itself."""
    ranks_per_node: int | None = Field(default=None, ge=1, le=1024)
    """Ranks that a node takes, of one model or of several; None: those of one model."""
    cores_per_rank: int | None = Field(default=None, ge=1, le=4096)
    """Cores of a rank's own; None: one with a scheduler, here a share of all that there are."""
    gpus_per_rank: int = Field(default=0, ge=0, le=16)
    container: str | None = Field(default=None, min_length=1, pattern=r"^[^\r\n]+$")
    """An image that the jobs run in, in the place of ``site.toml``'s; its runtime stays."""
    bind: bool = True
    """Whether ranks keep to cores of their own, near their GPUs."""
