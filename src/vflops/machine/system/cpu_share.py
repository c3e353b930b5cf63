"""The cores of a process and its number of threads: one rule for ceilings, training and data.

A process may use the CPUs of its affinity, up to the CPU quota of its cgroup and to
``SLURM_CPUS_PER_TASK``, since not every site binds a task to its cores. The ranks of a node share
them equally. ``OMP_NUM_THREADS`` limits the threads of every process, as everywhere, and the number
of processes that a command uses instead of threads.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from vflops.machine.probe import AbsentError
from vflops.machine.system.cgroup import cpu_quota

OMP = "OMP_NUM_THREADS"
_SLURM = "SLURM_CPUS_PER_TASK"
_ROOT = Path("/")


@dataclass(frozen=True)
class CpuThreads:
    """A number of threads, and what determined it."""

    count: int
    source: str
    """``affinity``, ``cgroup quota`` or the name of a variable."""


def usable_cores() -> list[int]:
    """Return the cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def physical_cores() -> int:
    """Return how many physical cores the cores of this process belong to."""
    siblings = set()
    for core in usable_cores():
        try:
            path = _ROOT / f"sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list"
            siblings.add(path.read_text().strip() or str(core))
        except OSError:
            siblings.add(str(core))
    return len(siblings)


def available_cpus() -> int:
    """Return the number of CPUs that the processes of a job on this machine may use together."""
    return _available(len(usable_cores())).count


def cpu_threads(ranks: int = 1, *, bound: bool = False) -> CpuThreads:
    """Return the threads of each of ``ranks`` processes that share the CPUs of this one.

    ``bound`` means that this process is one of them and already has only its share of the cores.
    """
    cores = len(usable_cores())
    cpus = CpuThreads(cores, "affinity") if bound else _available(cores)
    share = CpuThreads(cpus.count if bound else max(cpus.count // ranks, 1), cpus.source)
    if bound and (quota := _quota()) is not None and quota // ranks < cores:  # it is for all ranks
        share = CpuThreads(max(quota // ranks, 1), "cgroup quota")
    limit = _number(OMP)
    return CpuThreads(limit, OMP) if limit is not None and limit < share.count else share


def pool_processes() -> int:
    """Return the number of processes with one thread each among which a command divides work."""
    return cpu_threads().count


def _available(cores: int) -> CpuThreads:
    limits = [CpuThreads(cores, "affinity")]
    if (quota := _quota()) is not None:
        limits.append(CpuThreads(quota, "cgroup quota"))
    if (requested := _number(_SLURM)) is not None:
        limits.append(CpuThreads(requested, _SLURM))
    return min(limits, key=lambda limit: limit.count)


def _quota() -> int | None:
    """Return the whole CPUs in the quota of this process's cgroup, at least 1; None without one."""
    try:
        return max(int(cpu_quota(_ROOT)), 1)
    except (AbsentError, OSError, ValueError):
        return None


def _number(variable: str) -> int | None:
    """Return the positive number in a variable, the first of a list; None if there is none."""
    first = os.environ.get(variable, "").partition(",")[0].strip()
    return int(first) if first.isdecimal() and int(first) > 0 else None
