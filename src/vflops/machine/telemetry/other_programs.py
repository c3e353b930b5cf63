"""The programs outside of a run that use the CPUs: by name and share, without arguments."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Collection
from pathlib import Path

from vflops.machine.telemetry.process_tree import Process, members, process
from vflops.record.formats.telemetry import ProgramShare

MAX_LISTED = 5
_INIT = 1
"""It waits for all orphans: its time is theirs, which was counted already."""
MIN_SHARE = 0.01
"""Programs that use less of the CPUs are not listed."""


class OtherPrograms:
    """Measures which programs use the CPUs since the object was created.

    Processes that ``pid`` started are left out, and so are those that have ``run_folder`` as an
    argument, such as the other jobs of an ensemble, with all that they started.
    """

    def __init__(
        self,
        pid: int | None = None,
        root: Path = Path("/"),
        *,
        run_folder: Path | None = None,
        cpus: Collection[int] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._pid = os.getpid() if pid is None else pid
        self._proc = root / "proc"
        self._mark = run_folder.name.encode() if run_folder is not None else None
        self._cpus = _affinity(self._pid) if cpus is None else cpus
        self._clock = clock
        self._known: dict[int, int] = {}
        self._ticks: Counter[str] = Counter()
        self._before = self._scan()
        self._start_s = clock()

    def shares(self) -> list[ProgramShare]:
        """Return the busiest programs, busiest first; none if ``/proc`` cannot be read.

        A process that has ended since the previous call counts for its parent.
        """
        before, now = self._before, self._scan()
        self._before = now
        for name, ticks in self._spent(before, now).items():
            self._ticks[name] += ticks
        available = (self._clock() - self._start_s) * os.sysconf("SC_CLK_TCK") * len(self._cpus)
        if available <= 0:
            return []
        shares = [(name, ticks / available) for name, ticks in self._ticks.most_common(MAX_LISTED)]
        return [
            ProgramShare(name=name, share=round(min(share, 1.0), 4))
            for name, share in shares
            if share >= MIN_SHARE
        ]

    def _spent(self, before: dict[int, Process], now: dict[int, Process]) -> Counter[str]:
        ours = {item.pid for item in members(now, self._pid, self._known)}
        self._known = {pid: now[pid].started for pid in ours}
        # What an ended process used was counted already, and is now part of the time of the parent
        # that waited for it: the nearest one that still runs, if several have ended.
        ended: Counter[int] = Counter()
        for item in before.values():
            if not _is_alive(item, now):
                ended[_living_parent(item, before, now)] += item.cpu_ticks
        spent: Counter[str] = Counter()
        for pid, item in now.items():
            last = before.get(pid)
            known = last.cpu_ticks if last is not None and last.started == item.started else 0
            ticks = item.cpu_ticks - known - ended[pid]
            if ticks > 0 and pid != _INIT and self._is_other(item, now, ours):
                spent[item.name] += ticks
        return spent

    def _is_other(self, item: Process, now: dict[int, Process], ours: Collection[int]) -> bool:
        if item.pid in ours or (item.cpu is not None and item.cpu not in self._cpus):
            return False
        while self._mark is not None:
            if self._mark in _arguments(self._proc, item.pid):
                return False
            if item.parent not in now or item.parent == item.pid:
                break
            item = now[item.parent]
        return True

    def _scan(self) -> dict[int, Process]:
        try:
            pids = [int(name) for name in os.listdir(self._proc) if name.isdigit()]  # noqa: PTH208
        except OSError:
            return {}
        found = (process(self._proc, pid) for pid in pids)
        return {item.pid: item for item in found if item is not None}


def _is_alive(item: Process, now: dict[int, Process]) -> bool:
    return item.pid in now and now[item.pid].started == item.started


def _living_parent(item: Process, before: dict[int, Process], now: dict[int, Process]) -> int:
    seen = {item.pid}
    while item.parent in before and item.parent not in seen:
        item = before[item.parent]
        seen.add(item.pid)
        if _is_alive(item, now):
            return item.pid
    return item.parent


def _affinity(pid: int) -> set[int]:
    try:
        return os.sched_getaffinity(pid)
    except OSError:
        return set(range(os.cpu_count() or 1))


def _arguments(proc: Path, pid: int) -> bytes:
    try:
        return (proc / str(pid) / "cmdline").read_bytes()
    except OSError:
        return b""
