"""The scheduler that this process runs under, and its allocation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from vflops.machine.probe import AbsentError, absent, command, fact
from vflops.record.formats.system import Fact, Value


@dataclass(frozen=True)
class Scheduler:
    """The variables that a scheduler sets; no other variables are read."""

    name: str
    variable: str
    """The variable that is set in every job of the scheduler."""
    version: str | None
    """The command that prints its version."""
    allocation: Mapping[str, str]
    """For the name of each fact, the variable that it is read from.

    Node lists, accounts, job names and folders are not recorded, since they name hosts and people.
    """


# A scheduler that may run inside a job of another scheduler comes first.
SCHEDULERS = (
    Scheduler(
        "flux",
        "FLUX_JOB_ID",
        "flux --version",
        {"job": "FLUX_JOB_ID", "nodes": "FLUX_JOB_NNODES", "tasks": "FLUX_JOB_SIZE"},
    ),
    Scheduler(
        "slurm",
        "SLURM_JOB_ID",
        "srun --version",
        {
            "job": "SLURM_JOB_ID",
            "nodes": "SLURM_JOB_NUM_NODES",
            "tasks": "SLURM_NTASKS",
            "tasks per node": "SLURM_TASKS_PER_NODE",
            "cpus per task": "SLURM_CPUS_PER_TASK",
            "cpus on node": "SLURM_CPUS_ON_NODE",
            "accelerators on node": "SLURM_GPUS_ON_NODE",
            "memory per node": "SLURM_MEM_PER_NODE",
            "partition": "SLURM_JOB_PARTITION",
        },
    ),
    Scheduler(
        "pbs",
        "PBS_JOBID",
        "qstat --version",
        {
            "job": "PBS_JOBID",
            "nodes": "PBS_NODEFILE",
            "cpus on node": "NCPUS",
            "partition": "PBS_QUEUE",
        },
    ),
    Scheduler(
        "lsf",
        "LSB_JOBID",
        None,
        {
            "job": "LSB_JOBID",
            "nodes": "LSB_MCPU_HOSTS",
            "tasks": "LSB_DJOB_NUMPROC",
            "partition": "LSB_QUEUE",
        },
    ),
)

# Conversions for variables whose value is not itself the fact.
_CONVERSIONS: dict[str, Callable[[str], Value]] = {
    "SLURM_MEM_PER_NODE": lambda mib: int(mib) * 2**20,
    "PBS_JOBID": lambda job: job.partition(".")[0],  # the rest is the host name of the server
    "PBS_NODEFILE": lambda file: len(set(Path(file).read_text().split())),
    "LSB_MCPU_HOSTS": lambda pairs: len(pairs.split()) // 2,  # pairs of a host and its slots
}
_UNITS = {"memory per node": "B"}


def scheduler_facts(environ: Mapping[str, str]) -> list[Fact]:
    """Return facts about the scheduler and the allocation; ``none`` outside of a job."""
    scheduler = next((known for known in SCHEDULERS if environ.get(known.variable)), None)
    variables = ", ".join(known.variable for known in SCHEDULERS)
    if scheduler is None:
        return [
            fact("scheduler", "environment", lambda: "none"),
            absent("allocation", "environment", f"not in a job: none of {variables} is set"),
        ]
    return [
        fact("scheduler", scheduler.variable, lambda: scheduler.name),
        fact("scheduler version", scheduler.version or scheduler.name, lambda: _version(scheduler)),
        *(
            fact(
                f"allocation {name}",
                variable,
                partial(_value, variable, environ),
                unit=_UNITS.get(name),
            )
            for name, variable in scheduler.allocation.items()
        ),
    ]


def _version(scheduler: Scheduler) -> str:
    if scheduler.version is None:
        raise AbsentError(f"vflops has no command to read the version of {scheduler.name}")
    return command(*scheduler.version.split()).splitlines()[0]


def _value(variable: str, environ: Mapping[str, str]) -> Value:
    if variable not in environ:
        raise AbsentError(f"{variable} is not set")
    value = environ[variable]
    if variable in _CONVERSIONS:
        return _CONVERSIONS[variable](value)
    return int(value) if value.isdecimal() else value
