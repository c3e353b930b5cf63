"""A process with all that it started, as ``/proc`` shows them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

_FULL_SCAN_EVERY = 30


@dataclass(frozen=True)
class Process:
    """What one process has used so far."""

    pid: int
    parent: int
    started: int
    """Ticks after boot: tells a process from a later one with the same number."""
    cpu_ticks: int
    """Its own, and those of children that have ended and were waited for."""
    memory_pages: int


class ProcessTree:
    """The processes below one, those included whose parent ended before them.

    A node has thousands of others. Their numbers are remembered, so that only new ones are looked
    at; every so often all are, because numbers come around again.
    """

    def __init__(self, pid: int, proc: Path) -> None:
        self._pid = pid
        self._proc = proc
        self._ours: dict[int, int] = {}
        self._others: set[int] = set()
        self._scans = 0

    def processes(self) -> list[Process]:
        """Those that live now; ``OSError`` where ``/proc`` cannot be listed."""
        # A Path for each of thousands would cost more than all the rest.
        living = {int(name) for name in os.listdir(self._proc) if name.isdigit()}  # noqa: PTH208
        if self._scans % _FULL_SCAN_EVERY == 0:
            self._others.clear()
        self._scans += 1
        self._others &= living
        seen = [process(self._proc, pid) for pid in sorted(living - self._others)]
        found = {one.pid: one for one in seen if one is not None}
        ours = self._members(found)
        self._ours = {one.pid: one.started for one in ours}
        self._others |= found.keys() - self._ours.keys()
        return ours

    def _members(self, found: dict[int, Process]) -> list[Process]:
        def is_known(one: Process) -> bool:
            return one.pid == self._pid or self._ours.get(one.pid) == one.started

        members = {pid for pid, one in found.items() if is_known(one)}
        left = found.keys() - members
        while new := {pid for pid in left if found[pid].parent in members}:
            members |= new
            left -= new
        return [found[pid] for pid in sorted(members)]


def process(proc: Path, pid: int) -> Process | None:
    """What ``/proc/<pid>/stat`` says; None for a process that is gone."""
    try:
        line = (proc / str(pid) / "stat").read_bytes()
        # The command's name stands in brackets and may hold spaces and brackets itself.
        fields = line[line.rindex(b")") + 2 :].split()
        return Process(
            pid=pid,
            parent=int(fields[1]),
            cpu_ticks=sum(map(int, fields[11:15])),
            started=int(fields[19]),
            memory_pages=int(fields[21]),
        )
    except (OSError, ValueError, IndexError):
        return None
