"""Settings for launching jobs: where they run, and the resources of each rank."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from vflops.config.section import Section


class LaunchSettings(Section):
    """Where the jobs of an ensemble run."""

    on: str = "local"
    """The launcher: local, slurm, join, or one that another package provides."""
    start: Literal["together", "apart"] = "together"
    """With SLURM, whether all jobs share one allocation (``together``) or each job is submitted
    separately (``apart``)."""
    nodes: int | None = Field(default=None, ge=1, le=65536)
    """Number of whole nodes that the jobs share under a scheduler; None for as many as they
    need."""
    ranks_per_node: int | None = Field(default=None, ge=1, le=1024)
    """Ranks per node, which may belong to several models; None for the ranks of one model."""
    cores_per_rank: int | None = Field(default=None, ge=1, le=4096)
    """Cores per rank. If None, the cores of a node are divided among its slots."""
    gpus_per_rank: int | None = Field(default=None, ge=0, le=16)
    """GPUs per rank. If None, 1 on nodes with GPUs unless ``train.device`` is ``cpu``, else 0.
    With ``train.device=cpu``, 1 requests GPUs that are not used: a trial of the layout."""
    container: str | None = Field(default=None, min_length=1, pattern=r"^[^\r\n]+$")
    """Container image for the jobs, which overrides the image in ``site.toml``; the container
    runtime is still taken from there."""
    hang_s: float = Field(default=300.0, ge=0.0, le=86400.0)
    """Seconds without progress after which the ranks of a job can be judged to hang; the limit that
    applies is learned from the job's own steps and may be much longer. 0 turns the watch off."""
    bind: bool = True
    """Whether each rank is bound to its own cores, close to its GPU."""
    rehearse: bool = False
    """Whether ranks share accelerators or cores, so that a layout can be tried on fewer of them: a
    rehearsal, which has no score and is never valid. ``ranks_per_node`` is then the number of
    accelerators of a node of the real layout."""


def on_this_machine(on: str) -> bool:
    """Whether jobs with this ``launch.on`` run on the machine of the command.

    This knows only the launchers of vflops; those of other packages say it themselves.
    """
    return on == "local"


def ranks_on_each_node(nodes: int, models: int, ranks: int) -> int:
    """Return how many ranks each node takes if models are spread over all of the nodes."""
    if models < nodes:
        return -(-ranks // (nodes // models))
    return -(-models // nodes) * ranks
