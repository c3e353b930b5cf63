"""The scheduler that this process runs under, and what it was given."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from vflops.system.probe import Absent, absent, command, fact
from vflops.system.record import Fact

Environ = Mapping[str, str]


@dataclass(frozen=True)
class Scheduler:
    """Which variables a scheduler sets; only those named here are ever read."""

    name: str
    mark: str
    """Is set in every job of it."""
    version: tuple[str, ...] | None
    """The command that prints its version."""
    allocation: Mapping[str, str | Callable[[Environ], int]]
    """A fact's name → the variable that holds it, or how it is counted.

    Node lists, accounts, job names and folders name hosts and people: they are left out.
    """


def _pbs_nodes(environ: Environ) -> int:
    return len(set(Path(environ["PBS_NODEFILE"]).read_text().split()))


def _lsf_nodes(environ: Environ) -> int:
    return len(environ["LSB_MCPU_HOSTS"].split()) // 2  # pairs of a host and its slots


# A scheduler that runs inside another one's job comes first.
SCHEDULERS = (
    Scheduler(
        "flux",
        "FLUX_JOB_ID",
        ("flux", "--version"),
        {"job": "FLUX_JOB_ID", "nodes": "FLUX_JOB_NNODES", "tasks": "FLUX_JOB_SIZE"},
    ),
    Scheduler(
        "slurm",
        "SLURM_JOB_ID",
        ("srun", "--version"),
        {
            "job": "SLURM_JOB_ID",
            "nodes": "SLURM_JOB_NUM_NODES",
            "tasks": "SLURM_NTASKS",
            "tasks per node": "SLURM_TASKS_PER_NODE",
            "cpus per task": "SLURM_CPUS_PER_TASK",
            "cpus on node": "SLURM_CPUS_ON_NODE",
            "accelerators on node": "SLURM_GPUS_ON_NODE",
            "memory per node in MiB": "SLURM_MEM_PER_NODE",
            "partition": "SLURM_JOB_PARTITION",
        },
    ),
    Scheduler(
        "pbs",
        "PBS_JOBID",
        ("qstat", "--version"),
        {"job": "PBS_JOBID", "nodes": _pbs_nodes, "cpus per task": "NCPUS", "queue": "PBS_QUEUE"},
    ),
    Scheduler(
        "lsf",
        "LSB_JOBID",
        None,
        {
            "job": "LSB_JOBID",
            "nodes": _lsf_nodes,
            "tasks": "LSB_DJOB_NUMPROC",
            "queue": "LSB_QUEUE",
        },
    ),
)


def scheduler_facts(environ: Environ) -> list[Fact]:
    """Facts of the scheduler and the allocation; ``none`` and the reason outside of one."""
    source = "environment"
    found = next((each for each in SCHEDULERS if environ.get(each.mark)), None)
    if found is None:
        marks = ", ".join(each.mark for each in SCHEDULERS)
        return [
            fact("scheduler", source, lambda: "none"),
            absent("allocation", source, f"not in a scheduler's job: none of {marks} is set"),
        ]
    return [
        fact("scheduler", source, lambda: found.name),
        fact("scheduler version", " ".join(found.version or ()) or source, lambda: _version(found)),
        *(
            fact(f"allocation {name}", _source(how), lambda how=how: _read(how, environ))
            for name, how in found.allocation.items()
        ),
    ]


def _version(scheduler: Scheduler) -> str:
    if scheduler.version is None:
        raise Absent(f"vflops knows no command that prints the version of {scheduler.name}")
    return command(*scheduler.version).splitlines()[0]


def _source(how: str | Callable[[Environ], int]) -> str:
    return how if isinstance(how, str) else "environment"


def _read(how: str | Callable[[Environ], int], environ: Environ) -> int | str:
    if not isinstance(how, str):
        return how(environ)
    if how not in environ:
        raise Absent(f"{how} is not set")
    value = environ[how]
    if how == "PBS_JOBID":
        value = value.partition(".")[0]  # the rest is the name of the server
    return int(value) if value.isdecimal() else value
