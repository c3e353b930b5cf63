"""Jobs of this machine, each on cores and devices of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from vflops.launch.core_binding import Topology, bind, visible
from vflops.launch.interface import Launcher
from vflops.launch.job_script import ELSEWHERE, ELSEWHERE_CODE
from vflops.launch.node_group import CORES
from vflops.launch.placement import Node, plan
from vflops.record.files import atomic
from vflops.record.files.lock import is_locked
from vflops.record.folder import RunFolder
from vflops.record.formats.job import JobRecord


@dataclass(frozen=True)
class Slot:
    """Where one rank computes: cores that nobody else uses, and a device where there are any."""

    number: int
    cores: tuple[int, ...]
    device: int | None = None


def split_cores(
    topology: Topology,
    cores: Sequence[int],
    slots: int,
    *,
    devices: Sequence[int] = (),
    each: int | None = None,
) -> list[Slot]:
    """``slots`` equal parts of the cores, near their devices; the rest is used by nobody."""
    shares = [part.cores for part in bind(topology, cores, slots, devices)]
    if each is not None and any(len(share) < each for share in shares):
        ordered = topology.order(cores)  # as many as were asked for, also of two NUMA nodes
        shares = [tuple(ordered[k * each : (k + 1) * each]) for k in range(slots)]
    shares = [share[:each] for share in shares] or [tuple(cores)] * slots
    return [Slot(k, share, devices[k] if devices else None) for k, share in enumerate(shares)]


def on_this_machine(folder: RunFolder, records: Sequence[JobRecord], *, waves: bool) -> LocalJobs:
    """The launcher of jobs that run side by side, each with its share of this machine."""
    from vflops.machine.devices import rank_capacity
    from vflops.machine.host import usable_cores

    ranks, each = records[0].ranks, folder.record.settings.launch.cores_per_rank
    count, devices = rank_capacity(records[0].settings["train"]["device"], each)
    number = count if devices else min(count, len(records) * ranks)
    planned = plan([Node("this machine", number)], len(records), ranks, waves=waves)
    cuda = "CUDA_VISIBLE_DEVICES"  # the user may hide some
    shown = visible({cuda: os.environ.get(cuda, "")})
    gpus = (shown if len(shown) >= number else range(number)) if devices else ()
    parts = split_cores(Topology.read(), usable_cores(), number, devices=gpus, each=each)
    own: dict[int, list[Slot]] = {}
    for record, placement in zip(records, planned.placements, strict=True):
        own[record.job] = [parts[slot] for _, slots in placement.places for slot in slots]
    return LocalJobs(folder, own)


class LocalJobs(Launcher):
    """A process a job; they outlive this one, and are found again by their locks."""

    name = "local"

    def __init__(self, folder: RunFolder, slots: Mapping[int, Sequence[Slot]]) -> None:
        self._folder = folder
        self._slots = slots
        self._processes: dict[int, subprocess.Popen[bytes]] = {}

    def start(self, jobs: Mapping[int, int]) -> Collection[int]:
        """Start the agents of those jobs whose slots are free."""
        return [job for job in jobs if self._start(job)]

    def _start(self, job: int) -> bool:
        wanted = {slot.number for slot in self._slots[job]}
        if any(wanted & {slot.number for slot in self._slots[other]} for other in self.alive()):
            return False
        cores = [core for slot in self._slots[job] for core in slot.cores]
        devices = [str(slot.device) for slot in self._slots[job] if slot.device is not None]
        own = {CORES: ",".join(map(str, cores))}
        if devices:
            own["CUDA_VISIBLE_DEVICES"] = ",".join(devices)
        path = self._log(job)
        command = [sys.executable, "-P", "-m", "vflops.launch.agent"]
        try:
            with path.open("ab") as output:
                self._processes[job] = subprocess.Popen(
                    [*command, str(self._folder.path), str(job)],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    start_new_session=True,
                    env={**os.environ, **own},
                )
        except OSError as error:
            raise atomic.cannot_write(path, error) from error
        return True

    def _log(self, job: int) -> Path:
        return self._folder.job_file(job).parent / "agent.log"

    def alive(self) -> Collection[int]:
        """Jobs whose agent lives: started here, or by another controller before."""
        started = {job for job, process in self._processes.items() if process.poll() is None}
        return started | {job for job in self._slots if is_locked(self._folder.job_lock(job))}

    def where(self, job: int) -> str:
        """Its cores, or its devices."""
        slots = self._slots[job]
        devices = [str(slot.device) for slot in slots if slot.device is not None]
        if devices:
            return f"device {', '.join(devices)}"
        cores = [str(core) for slot in slots for core in slot.cores]
        return f"core {', '.join(cores)}"

    def ending(self, job: int) -> str | None:
        """The exit code or the signal of an agent that was started here."""
        own = self._processes.get(job)
        code = own.poll() if own is not None else None
        if code is None:
            return None
        if code < 0:
            return f"its agent was killed by {signal.Signals(-code).name}"
        return f"its agent ended with code {code}, see {self._log(job)}"

    def elsewhere(self, job: int) -> str | None:
        """An agent says it by its exit code."""
        own = self._processes.get(job)
        code = own.poll() if own is not None else None
        return ELSEWHERE if code == ELSEWHERE_CODE else None

    def stop(self) -> None:
        """Ask every agent, also one that another controller started."""
        for job in self.alive():
            own = self._processes.get(job)
            lock = self._folder.job_lock(job)
            with suppress(OSError, ValueError):
                if own is not None and own.poll() is None:
                    own.send_signal(signal.SIGTERM)
                elif is_locked(lock):  # else the number in it may be anybody's by now
                    os.kill(int(lock.read_text()), signal.SIGTERM)
