"""Runs jobs as processes on this machine, each on its own cores and devices."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from vflops import interruption
from vflops.config.launch import LaunchSettings
from vflops.errors import UsageError
from vflops.launch.core_binding import Topology, bind, spans
from vflops.launch.job_script import (
    AGENT,
    ELSEWHERE_CODE,
    LOCAL_PATH,
    NODE_CHECK,
    PREFLIGHT,
    step_log,
)
from vflops.launch.launcher import Ending, Launcher, Look
from vflops.launch.node_group import CORES
from vflops.launch.placement import THIS_MACHINE, Node, plan
from vflops.launch.process_signals import signal_process
from vflops.launch.rehearsal import AT_ONCE, THREADS
from vflops.launch.scheduler import JobStatus
from vflops.launch.site import SiteSettings
from vflops.launch.sizing import RankShare, local_node, local_nodes
from vflops.machine.system.cpu_share import usable_cores
from vflops.machine.visible_devices import CUDA, slot_devices, visible_devices
from vflops.record.files import atomic
from vflops.record.folder import RunFolder
from vflops.record.formats.job import JobRecord


@dataclass(frozen=True)
class Slot:
    """The cores of one rank, which no other slot has, and its device if there are any."""

    number: int
    cores: tuple[int, ...]
    device: str | None = None
    """Its entry in CUDA_VISIBLE_DEVICES."""


def where(slots: Sequence[Slot]) -> str:
    """Return the devices or cores of slots: ``cores 0-3``, or ``4 ranks share device 0``."""
    devices = [slot.device for slot in slots if slot.device is not None]
    cores = [core for slot in slots for core in slot.cores]
    names, used = list(dict.fromkeys(devices)), set(cores)
    if names:
        place = f"device{'s' * (len(names) > 1)} {', '.join(names)}"
    else:
        place = f"core{'s' * (len(used) > 1)} {spans(used)}" if used else ""
    is_shared = len(names) < len(devices) or len(used) < len(cores)
    return f"{len(slots)} ranks share {place}" if is_shared else place


class LocalLauncher(Launcher):
    """Processes of this machine.

    Each job has an agent, a process that outlives this one.
    Agents that an earlier controller started are recognised by their command, which names the run
    folder and the job. Only a controller starts agents, and a run has one at a time.
    """

    name = "local"
    is_this_machine = True

    @classmethod
    def check(cls, settings: LaunchSettings) -> None:
        """Raise UsageError for a container or several nodes, which need a scheduler."""
        if settings.container is not None:
            raise UsageError(
                f"the container {settings.container} needs a scheduler, but the jobs run locally",
                hint="add --on slurm, or start vflops itself in the container",
            )
        if (settings.nodes or 1) > 1 and not settings.rehearse:
            raise UsageError(
                f"--nodes {settings.nodes}, but the jobs run on this machine",
                hint="add --on slurm, or leave --nodes out; to act them out here: --rehearse",
            )

    @classmethod
    def nodes(cls, settings: LaunchSettings, device: str) -> list[Node]:
        """Return this machine as the only node or, in a rehearsal, the nodes it stands for."""
        return local_nodes(settings, device)

    @classmethod
    def nodes_reserved(cls) -> bool:
        """Return True: this machine does not have to be allocated."""
        return True

    @classmethod
    def nodes_to_check(cls, nodes: int | None, site: SiteSettings) -> tuple[int, Mapping[str, str]]:
        """Return one node."""
        if nodes is not None and nodes > 1:
            raise UsageError(
                f"--nodes {nodes} --on {cls.name}",
                hint="this machine is one node: leave --nodes out",
            )
        return 1, {}

    @classmethod
    @contextmanager
    def checking(
        cls, folder: Path, site: SiteSettings, nodes: int, each: RankShare
    ) -> Iterator[Look]:
        """Check this machine; tests start more than one node on it to see how they meet."""
        local = {LOCAL_PATH: os.path.expandvars(site.local_path)} if site.local_path else {}
        processes = []
        for number in range(nodes):
            path = step_log(folder / PREFLIGHT, number)
            atomic.make_folder(path.parent)
            with path.open("ab") as log:
                check = subprocess.Popen(
                    [sys.executable, *NODE_CHECK, str(folder), str(number)],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                    env={**os.environ, **local},
                )
            processes.append(check)

        def look() -> JobStatus:
            running = any(process.poll() is None for process in processes)
            names = (socket.gethostname(),) * nodes
            return JobStatus("running" if running else "ended", names, None)

        try:
            yield look
        finally:
            _end_sessions(processes)

    def __init__(self, folder: RunFolder, records: Sequence[JobRecord]) -> None:
        self._folder, self._records = folder, records
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        jobs = {record.job for record in records}
        self._adopted = {job: pid for job, pid in agents_of(folder).items() if job in jobs}
        self._slots: dict[int, list[Slot]] = {}

    def start(self, jobs: Mapping[int, int]) -> Collection[int]:
        """Start the agents of those jobs whose slots are free."""
        self._slots = self._slots or _divide_machine(self._folder, self._records)
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
        devices = [slot.device for slot in self._slots[job] if slot.device is not None]
        variables = {CORES: ",".join(map(str, dict.fromkeys(cores)))}
        if devices:
            variables[CUDA] = ",".join(dict.fromkeys(devices))
        cores_of = {slot.number: slot.cores for slots in self._slots.values() for slot in slots}
        if sum(map(len, cores_of.values())) > len(set().union(*cores_of.values())):
            variables[THREADS] = "1"  # a rehearsal with more ranks than cores
        if self._folder.record.settings.launch.rehearse:
            variables[AT_ONCE] = str(len(cores_of))
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
        return self._pids().keys()

    def location(self, job: int) -> str:
        """Return the devices or cores of a job that was started."""
        return where(self._slots.get(job, ()) if job in self._processes else ())

    def ending(self, job: int) -> Ending:
        """Return the exit code or the signal of an agent that was started here."""
        process = self._processes.get(job)
        code = process.poll() if process is not None else None
        if code is None:
            return Ending()
        if code < 0:
            return Ending(reason=f"its agent was killed by {signal.Signals(-code).name}")
        text = f"its agent ended with code {code}, see {self._log(job)}"
        return Ending("elsewhere" if code == ELSEWHERE_CODE else "fault", text)

    def stop(self) -> None:
        """Ask every agent to stop, including those that an earlier controller started."""
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """Kill the agents, and with them their ranks."""
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        for job, pid in self._pids().items():
            signal_process(pid, number, partial(_is_agent, pid, self._folder, job))

    def _pids(self) -> dict[int, int]:
        """Return the processes of the agents that run, by job."""
        started = {
            job: process.pid for job, process in self._processes.items() if process.poll() is None
        }
        self._adopted = {
            job: pid for job, pid in self._adopted.items() if job_of(pid, self._folder) == job
        }
        return self._adopted | started


def split_cores(
    topology: Topology,
    cores: Sequence[int],
    slots: int,
    *,
    devices: Sequence[str] = (),
    gpus: Sequence[int] = (),
    cores_per_slot: int | None = None,
) -> list[Slot]:
    """Return ``slots`` equal shares of the cores near their devices; other cores stay unused.

    ``gpus`` are the indices of the devices in the topology, if they are known.
    """
    shares = [part.cores for part in bind(topology, cores, slots, gpus)]
    size = cores_per_slot
    if size is not None and any(len(share) < size for share in shares):
        ordered = topology.order(cores)  # as many as requested, even across NUMA nodes
        shares = [tuple(ordered[k * size : (k + 1) * size]) for k in range(slots)]
    shares = [share[:size] for share in shares] or [tuple(cores)] * slots
    return [Slot(k, share, devices[k] if devices else None) for k, share in enumerate(shares)]


def agents_of(folder: RunFolder) -> dict[int, int]:
    """Return the process ids of the run's agents on this machine, by job."""
    pids = (int(path.name) for path in Path("/proc").glob("[0-9]*"))
    jobs = ((job_of(pid, folder), pid) for pid in pids)
    return {job: pid for job, pid in jobs if job is not None}


def job_of(pid: int, folder: RunFolder) -> int | None:
    """Return the job of this run that the process is the agent of; None if it is not an agent."""
    with suppress(OSError, ValueError, IndexError):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
        at = words.index("vflops.launch.agent")
        if words[at - 1] == "-m":
            run = Path(f"/proc/{pid}/cwd").readlink() / words[at + 1]
            if run.resolve() == folder.path.resolve():
                return int(words[at + 2])
    return None


def _is_agent(pid: int, folder: RunFolder, job: int) -> bool:
    return job_of(pid, folder) == job


def _divide_machine(folder: RunFolder, records: Sequence[JobRecord]) -> dict[int, list[Slot]]:
    """Return the slots of each job, which run side by side."""
    settings, device = folder.record.settings, records[0].settings["train"]["device"]
    launch, ranks = settings.launch, records[0].ranks
    if launch.rehearse:
        return _share_machine(launch, device, records, waves=settings.bagging.waves)
    node = local_node(launch, device)
    number = node.slots if node.accelerated else min(node.slots, len(records) * ranks)
    planned = plan([Node(THIS_MACHINE, number)], len(records), ranks, waves=settings.bagging.waves)
    parts = divide_node(number, node.accelerated, device, launch.cores_per_rank)
    slots_of: dict[int, list[Slot]] = {}
    for record, placement in zip(records, planned.placements, strict=True):
        slots_of[record.job] = [parts[slot] for _, slots in placement.places for slot in slots]
    return slots_of


def divide_node(
    number: int, accelerated: bool, device: str, cores_per_slot: int | None
) -> list[Slot]:
    """Return ``number`` slots of this node, each with its share of the cores and its device.

    A slot has no device on a node without accelerators, or if ``device`` names one: ranks find it
    by its index among all that the user has not hidden.
    """
    shared = accelerated and device != "cpu" and ":" not in device
    devices = slot_devices(number) if shared else []
    gpus = visible_devices({CUDA: ",".join(devices)})
    return split_cores(
        Topology.read(),
        usable_cores(),
        number,
        devices=devices,
        gpus=gpus,
        cores_per_slot=cores_per_slot,
    )


def _share_machine(
    launch: LaunchSettings, device: str, records: Sequence[JobRecord], *, waves: bool
) -> dict[int, list[Slot]]:
    """Return the slots of each job in a rehearsal: those of several nodes, all on this machine.

    Slots have cores of their own as long as there are enough, else they share all of them.
    """
    nodes = local_nodes(launch, device)
    first = {node.name: number * node.slots for number, node in enumerate(nodes)}
    number, cores = len(nodes) * nodes[0].slots, usable_cores()
    resources = nodes[0].resources
    owned = resources.gpus if resources is not None and nodes[0].gpus_per_slot else 0
    shown = slot_devices(owned) if ":" not in device else []
    devices = [shown[slot % owned] for slot in range(number)] if shown else []
    size = launch.cores_per_rank if number * (launch.cores_per_rank or 1) <= len(cores) else None
    parts = split_cores(
        Topology.read(),
        cores,
        number,
        devices=devices,
        gpus=visible_devices({CUDA: ",".join(devices)}),
        cores_per_slot=size,
    )
    planned = plan(nodes, len(records), records[0].ranks, waves=waves)
    return {
        record.job: [
            parts[first[node] + slot] for node, slots in placement.places for slot in slots
        ]
        for record, placement in zip(records, planned.placements, strict=True)
    }


def _end_sessions(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """Terminate each process and all that it started, then kill what is left."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        for process in processes:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, number)
        with suppress(subprocess.TimeoutExpired):
            for process in processes:
                process.wait(timeout=5)
