"""A process and all its descendants, read from ``/proc``."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_FULL_SCAN_EVERY = 30


@dataclass(frozen=True)
class Process:
    """The CPU time and memory that one process has used so far."""

    pid: int
    parent: int
    started: int
    """Start time in ticks after boot; distinguishes processes that had the same PID."""
    cpu_ticks: int
    """Ticks of the process, and of its ended children that it waited for."""
    memory_pages: int
    name: str = ""
    """The name of the program, without its arguments."""
    cpu: int | None = None
    """The CPU that the main thread ran on last; None if the kernel does not say."""


class ProcessTree:
    """The descendants of a process, including those whose parent has ended.

    A node has thousands of other processes. Their PIDs are remembered, so that only new processes
    are read; every 30th time all processes are read, because PIDs are reused.
    """

    def __init__(self, pid: int, proc: Path) -> None:
        self._pid = pid
        self._proc = proc
        self._ours: dict[int, int] = {}
        self._others: set[int] = set()
        self._scans = 0

    def processes(self) -> list[Process]:
        """Return the living processes, or raise ``OSError`` if ``/proc`` cannot be listed."""
        # Creating thousands of Path objects would cost more than everything else.
        living = {int(name) for name in os.listdir(self._proc) if name.isdigit()}  # noqa: PTH208
        if self._scans % _FULL_SCAN_EVERY == 0:
            self._others.clear()
        self._scans += 1
        self._others &= living
        seen = [process(self._proc, pid) for pid in sorted(living - self._others)]
        by_pid = {process.pid: process for process in seen if process is not None}
        ours = members(by_pid, self._pid, self._ours)
        self._ours = {process.pid: process.started for process in ours}
        self._others |= by_pid.keys() - self._ours.keys()
        return ours


def members(by_pid: Mapping[int, Process], pid: int, known: Mapping[int, int]) -> list[Process]:
    """Return a process, those in ``known`` (pid and start time), and all their descendants."""

    def is_known(process: Process) -> bool:
        return process.pid == pid or known.get(process.pid) == process.started

    found = {pid for pid, process in by_pid.items() if is_known(process)}
    left = by_pid.keys() - found
    while new := {pid for pid in left if by_pid[pid].parent in found}:
        found |= new
        left -= new
    return [by_pid[pid] for pid in sorted(found)]


def process(proc: Path, pid: int) -> Process | None:
    """Read ``/proc/<pid>/stat``; None for a process that has ended."""
    try:
        line = (proc / str(pid) / "stat").read_bytes()
        # The name of the command is in parentheses and may itself contain spaces and parentheses.
        fields = line[line.rindex(b")") + 2 :].split()
        return Process(
            pid=pid,
            parent=int(fields[1]),
            cpu_ticks=sum(map(int, fields[11:15])),
            started=int(fields[19]),
            memory_pages=int(fields[21]),
            name=line[line.index(b"(") + 1 : line.rindex(b")")].decode(errors="replace"),
            cpu=int(fields[36]) if len(fields) > 36 else None,
        )
    except (OSError, ValueError, IndexError):
        return None
