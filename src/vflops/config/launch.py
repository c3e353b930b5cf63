"""Settings of launching: where jobs run, and the resources of a rank."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from vflops.config.section import Section


class LaunchSettings(Section):
    """Where the jobs of an ensemble run."""

    on: Literal["local", "slurm", "pbs", "lsf", "flux"] = "local"
    start: Literal["together", "apart"] = "together"
    """With SLURM: all jobs in one allocation, or each job submitted separately."""
    ranks_per_node: int | None = Field(default=None, ge=1, le=1024)
    """Ranks per node, of one model or of several; None: those of one model."""
    cores_per_rank: int | None = Field(default=None, ge=1, le=4096)
    """Cores per rank; None: one with a scheduler, an equal share of all cores on one machine."""
    gpus_per_rank: int = Field(default=0, ge=0, le=16)
    container: str | None = Field(default=None, min_length=1, pattern=r"^[^\r\n]+$")
    """A container image for the jobs, instead of that in ``site.toml``; the runtime stays."""
    bind: bool = True
    """Whether each rank is bound to its own cores, close to its GPU."""
