"""Job scripts for the schedulers that psij supports; psij writes the directives itself."""

from __future__ import annotations

from pathlib import Path

from vflops.errors import UsageError
from vflops.launch.job_script import (
    Request,
    ceilings_lines,
    node_command,
    quoted,
    script_text,
)


def job_script(request: Request, run: Path, job: int, scheduler: str) -> str:
    """Return the script of a job on one node."""
    site = request.site
    if site.container is not None and site.container.runtime == "pyxis":
        raise UsageError(
            f"the container runtime pyxis needs SLURM, but the scheduler is {scheduler}",
            hint="use apptainer, docker or podman",
        )
    if quoted(run) != str(run):  # psij writes it into a script of its own, in which bash expands it
        raise UsageError(
            f"the path of the run folder has characters that {scheduler} scripts cannot hold: "
            f"{str(run)!r}",
            hint="put runs in a folder with a plain name: choose it with --out",
        )
    if request.nodes > 1:  # an agent learns its node's number only from SLURM's steps
        raise UsageError(
            f"a job of {request.nodes} nodes cannot be started on {scheduler}",
            hint="use fewer ranks per model, so that a model fits on one node, or --on slurm",
        )
    command = node_command(site, run, str(job), request.gpus_per_task > 0)
    ceilings = ceilings_lines("", request, run, request.tasks_per_node)
    return script_text(site, (), [*ceilings, f"exec {command}"])
