"""The host: its load, its free memory and its last-level cache."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import psutil

from vflops.machine.probe import AbsentError, text
from vflops.machine.system.cgroup import memory_limit_b
from vflops.machine.system.memory import available_b
from vflops.machine.telemetry.other_programs import OtherPrograms
from vflops.record.formats.telemetry import ProgramShare

_ROOT = Path("/")
_SUFFIXES = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


class HostLoad:
    """Measures the CPU time that this process did not get since the object was created."""

    def __init__(self) -> None:
        self._start_times = psutil.cpu_times()
        self._process_s = self._process_time()
        self._programs = OtherPrograms(cpus=range(psutil.cpu_count() or 1))

    def others_share(self) -> float:
        """Return the share of CPU time that other processes of this machine used."""
        spent_s = self._spent_s()
        idle_s = sum(spent_s.get(name, 0.0) for name in ("idle", "iowait", "steal"))
        run_s = self._process_time() - self._process_s
        return _share(sum(spent_s.values()) - idle_s - run_s, spent_s)

    def stolen_share(self) -> float:
        """Return the share of CPU time that the host of this virtual machine withheld from it.

        0 on a machine of its own. Processes here wait in this time, so it is not in their times.
        """
        spent_s = self._spent_s()
        return _share(spent_s.get("steal", 0.0), spent_s)

    def programs(self) -> tuple[ProgramShare, ...]:
        """Return the programs that used most of this share, busiest first."""
        return tuple(self._programs.shares())

    def _spent_s(self) -> dict[str, float]:
        """Return the CPU time by kind. Guest time is left out: it is part of the user time."""
        now, before = psutil.cpu_times(), self._start_times
        return {
            name: getattr(now, name) - getattr(before, name)
            for name in now._fields
            if not name.startswith("guest")
        }

    @staticmethod
    def _process_time() -> float:
        return sum(os.times()[:4])


def _share(part_s: float, spent_s: Mapping[str, float]) -> float:
    total_s = sum(spent_s.values())
    return round(min(max(part_s / total_s, 0.0), 1.0), 4) if total_s > 0 else 0.0


def free_memory_bytes() -> int:
    """Return the main memory that this process may still use, within the limit of its cgroup."""
    try:
        available = available_b(_ROOT)
    except (OSError, AbsentError):  # not Linux
        available = int(psutil.virtual_memory().available)
    limit = _cgroup_left_bytes()
    return available if limit is None else min(available, limit)


def last_level_cache_bytes() -> int | None:
    """Return the total size of the last-level caches; None if the kernel does not report it."""
    caches: dict[tuple[int, str], int] = {}
    for index in _ROOT.glob("sys/devices/system/cpu/cpu[0-9]*/cache/index[0-9]*"):
        try:
            level, size = int(text(index / "level")), text(index / "size")
            size_bytes = int(size.rstrip("KMG")) * _SUFFIXES.get(size[-1:], 1)
            shared = text(index / "shared_cpu_list")
        except (OSError, ValueError):
            continue
        caches[level, shared] = size_bytes
    if not caches:
        return None
    last = max(level for level, _ in caches)
    return sum(size for (level, _), size in caches.items() if level == last)


def _cgroup_left_bytes() -> int | None:
    """Return the cgroup's memory limit less the memory of this process; None without a limit.

    Other processes of the cgroup are ignored.
    """
    try:
        limit = memory_limit_b(_ROOT)
    except (OSError, ValueError, AbsentError):
        return None
    return max(limit - int(psutil.Process().memory_info().rss), 0)
