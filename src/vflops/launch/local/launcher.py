"""Starts jobs on this machine, each on its own cores and devices."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from vflops import interruption
from vflops.launch.core_binding import Topology, bind
from vflops.launch.interface import Launcher
from vflops.launch.job_script import AGENT, ELSEWHERE, ELSEWHERE_CODE
from vflops.launch.node_group import CORES
from vflops.launch.placement import THIS_MACHINE, Node, plan
from vflops.machine.system.cpu_share import usable_cores
from vflops.machine.visible_devices import visible_devices
from vflops.record.files import atomic
from vflops.record.files.lock import is_locked
from vflops.record.folder import RunFolder
from vflops.record.formats.job import JobRecord

_CUDA = "CUDA_VISIBLE_DEVICES"


@dataclass(frozen=True)
class Slot:
    """The cores of one rank, which no other slot has, and its device if there are any."""

    number: int
    cores: tuple[int, ...]
    device: int | None = None


def split_cores(
    topology: Topology,
    cores: Sequence[int],
    slots: int,
    *,
    devices: Sequence[int] = (),
    cores_per_slot: int | None = None,
) -> list[Slot]:
    """Return ``slots`` equal shares of the cores near their devices; other cores stay unused."""
    shares = [part.cores for part in bind(topology, cores, slots, devices)]
    size = cores_per_slot
    if size is not None and any(len(share) < size for share in shares):
        ordered = topology.order(cores)  # as many as requested, even across NUMA nodes
        shares = [tuple(ordered[k * size : (k + 1) * size]) for k in range(slots)]
    shares = [share[:size] for share in shares] or [tuple(cores)] * slots
    return [Slot(k, share, devices[k] if devices else None) for k, share in enumerate(shares)]


def local_jobs(folder: RunFolder, records: Sequence[JobRecord], *, waves: bool) -> LocalJobs:
    """Return the launcher of jobs that run side by side, each with its share of this machine."""
    from vflops.machine.devices import rank_capacity  # imports torch

    ranks, per_rank = records[0].ranks, folder.record.settings.launch.cores_per_rank
    count, devices = rank_capacity(records[0].settings["train"]["device"], per_rank)
    number = count if devices else min(count, len(records) * ranks)
    planned = plan([Node(THIS_MACHINE, number)], len(records), ranks, waves=waves)
    # The user may have hidden some devices.
    visible = visible_devices({_CUDA: os.environ.get(_CUDA, "")})
    gpus = (visible if len(visible) >= number else range(number)) if devices else ()
    parts = split_cores(
        Topology.read(), usable_cores(), number, devices=gpus, cores_per_slot=per_rank
    )
    slots_of: dict[int, list[Slot]] = {}
    for record, placement in zip(records, planned.placements, strict=True):
        slots_of[record.job] = [parts[slot] for _, slots in placement.places for slot in slots]
    return LocalJobs(folder, slots_of)


class LocalJobs(Launcher):
    """Jobs with one process each, which outlives this process and is recognised by its lock."""

    name = "local"

    def __init__(self, folder: RunFolder, slots: Mapping[int, Sequence[Slot]]) -> None:
        self._folder = folder
        self._slots = slots
        self._processes: dict[int, subprocess.Popen[bytes]] = {}

    def start(self, jobs: Mapping[int, int]) -> Collection[int]:
        """Start the agents of those jobs whose slots are free."""
        used = {slot.number for job in self.active_jobs() for slot in self._slots[job]}
        started = []
        for job in jobs:
            slots = {slot.number for slot in self._slots[job]}
            if used.isdisjoint(slots):
                self._start(job)
                used |= slots
                started.append(job)
        return started

    def _start(self, job: int) -> None:
        cores = [core for slot in self._slots[job] for core in slot.cores]
        devices = [str(slot.device) for slot in self._slots[job] if slot.device is not None]
        variables = {CORES: ",".join(map(str, cores))}
        if devices:
            variables[_CUDA] = ",".join(devices)
        path = self._log(job)
        try:
            with path.open("ab") as output, interruption.protected():  # it outlives this process
                self._processes[job] = subprocess.Popen(
                    [sys.executable, *AGENT, str(self._folder.path), str(job)],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    start_new_session=True,
                    env={**os.environ, **variables},
                )
        except OSError as error:
            raise atomic.cannot_write(path, error) from error

    def _log(self, job: int) -> Path:
        return self._folder.job_file(job).parent / "agent.log"

    def active_jobs(self) -> Collection[int]:
        """Return the jobs with a running agent, started here or by an earlier controller."""
        started = {job for job, process in self._processes.items() if process.poll() is None}
        return started | {job for job in self._slots if is_locked(self._folder.job_lock(job))}

    def location(self, job: int) -> str:
        """Return the job's devices, or its cores."""
        slots = self._slots[job]
        devices = [str(slot.device) for slot in slots if slot.device is not None]
        if devices:
            return f"device {', '.join(devices)}"
        cores = [str(core) for slot in slots for core in slot.cores]
        return f"core {', '.join(cores)}"

    def exit_reason(self, job: int) -> str | None:
        """Return the exit code or the signal of an agent that was started here."""
        code = self._exit_code(job)
        if code is None:
            return None
        if code < 0:
            return f"its agent was killed by {signal.Signals(-code).name}"
        return f"its agent ended with code {code}, see {self._log(job)}"

    def running_elsewhere(self, job: int) -> str | None:
        """Return a message if the agent's exit code says that another one has the job."""
        return ELSEWHERE if self._exit_code(job) == ELSEWHERE_CODE else None

    def stop(self) -> None:
        """Ask every agent to stop, including those that an earlier controller started."""
        for job in self.active_jobs():
            process = self._processes.get(job)
            lock = self._folder.job_lock(job)
            with suppress(OSError, ValueError):
                if process is not None and process.poll() is None:
                    process.send_signal(signal.SIGTERM)
                elif is_locked(lock):  # otherwise its pid may belong to another process
                    os.kill(int(lock.read_text()), signal.SIGTERM)

    def _exit_code(self, job: int) -> int | None:
        process = self._processes.get(job)
        return process.poll() if process is not None else None
