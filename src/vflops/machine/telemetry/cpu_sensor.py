"""CPU and memory usage of the host, by the run and by other processes."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from vflops.machine.probe import AbsentError, reason_of, text
from vflops.machine.system.cgroup import cpu_quota
from vflops.machine.system.memory import used_b
from vflops.machine.telemetry.process_tree import ProcessTree
from vflops.record.formats.telemetry import Absent, Part, Series

_STAT = "/proc/stat"
_TREE = "/proc/<pid>/stat of the launcher and all it started"


@dataclass(frozen=True)
class _Ticks:
    total: int
    busy: int
    stolen: int
    run: int


class CpuSensor:
    """Reads CPU percentages since the previous reading (None at first), and bytes of memory."""

    def __init__(self, pid: int, root: Path = Path("/"), cpus: set[int] | None = None) -> None:
        self.absent: list[Absent] = []
        self._root = root
        self._cpus = os.sched_getaffinity(pid) if cpus is None else cpus
        self._share = self._cpus_of_run() / len(self._cpus)
        self._tree = ProcessTree(pid, root / "proc")
        self._before: _Ticks | None = None
        self._page_b = os.sysconf("SC_PAGESIZE")
        try:
            self.read()
        except Exception as error:
            self.absent.append(Absent(what="cpu", reason=reason_of(error, "/proc")))
        self._before = None

    def series(self) -> list[Series]:
        """Return the series: processors (all, run, others, stolen) and memory (all, run)."""
        if self.absent:
            return []
        share_of_all = f"% of {len(self._cpus)} CPUs"
        share_of_usable = (
            f"% of the {self._share * len(self._cpus):g} CPUs' time that the run may use"
        )
        return [
            _gauge("cpu.busy", f"processors busy, {share_of_all}", "%", _STAT, "node"),
            _gauge("cpu.run", f"processors busy for the run, {share_of_usable}", "%", _TREE, "run"),
            _gauge("cpu.others", f"processors busy for others, {share_of_all}", "%", _STAT, "node"),
            _gauge(
                "cpu.stolen", f"processors withheld by the host, {share_of_all}", "%", _STAT, "node"
            ),
            _gauge("memory.used", "memory in use", "B", "/proc/meminfo", "node"),
            _gauge("memory.run", "memory of the run, shared pages once each", "B", _TREE, "run"),
        ]

    def read(self) -> list[float | None]:
        """Return one value per series, or raise ``OSError`` if ``/proc`` cannot be read."""
        processes = self._tree.processes()
        if not processes:
            raise AbsentError("the launcher's process has ended")
        total, busy, stolen = self._ticks()
        now = _Ticks(total, busy, stolen, sum(process.cpu_ticks for process in processes))
        before, self._before = self._before, now
        run_b = self._page_b * sum(process.memory_pages for process in processes)
        return [*self._percentages(before, now), used_b(self._root), run_b]

    def _percentages(self, before: _Ticks | None, now: _Ticks) -> list[float | None]:
        if before is None or now.total <= before.total:
            return [None] * 4
        percent = 100 / (now.total - before.total)
        busy = percent * max(now.busy - before.busy, 0)
        # The ticks of an ended process are lost if its parent did not wait for it.
        run = percent * max(now.run - before.run, 0)
        stolen = percent * max(now.stolen - before.stolen, 0)
        shares = (busy, run / self._share, max(busy - run, 0.0), stolen)
        return [round(value, 2) for value in shares]

    def _ticks(self) -> tuple[int, int, int]:
        """Return total, busy and stolen time of the CPUs that the run may use.

        Stolen is the time in which the host of a virtual machine ran something else although a
        program was ready. It is not part of the time of any process here.
        """
        total = busy = stolen = found = 0
        for line in text(self._root / "proc/stat").splitlines():
            name, *fields = line.split()
            if name.startswith("cpu") and name[3:].isdigit() and int(name[3:]) in self._cpus:
                # The fields that follow are the time of guests, which is part of the user time.
                ticks = [int(field) for field in fields[:8]]
                total += sum(ticks)
                busy += sum(ticks[:3]) + sum(ticks[5:7])
                stolen += sum(ticks[7:])
                found += 1
        if not found:
            raise AbsentError(f"{_STAT} lists none of the CPUs that the run may use")
        return total, busy, stolen

    def _cpus_of_run(self) -> float:
        """Return the number of CPUs whose time the run may use: all of them, or a quota."""
        try:
            return min(cpu_quota(self._root), len(self._cpus))
        except (AbsentError, OSError, ValueError):
            return len(self._cpus)


def _gauge(id: str, title: str, unit: str, source: str, part: Part) -> Series:
    return Series(id=id, title=title, unit=unit, source=source, kind="gauge", part=part)
