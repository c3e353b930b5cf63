"""The long-lived agent of a node that joins a run: ``vflops join RUN`` on every node."""

from __future__ import annotations

import os
import platform
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib import metadata
from pathlib import Path

import vflops
from vflops.errors import FolderError, Interrupted, RunFailed, UsageError, VflopsError
from vflops.interruption import SignalCounter
from vflops.launch.core_binding import Topology
from vflops.launch.job_script import LOCAL_PATH
from vflops.launch.join.join_files import (
    BEAT_S,
    FOLDER,
    LOST_S,
    ControllerFile,
    NodeFile,
    OrdersFile,
    SignOfLife,
    Task,
    controller_file,
    node_file,
    read_nodes,
    read_orders,
)
from vflops.launch.local.local_launcher import split_cores
from vflops.launch.node_clock import offset_from_controller
from vflops.launch.node_group import ADDRESS, CORES, GROUP
from vflops.launch.parent_death import PARENT
from vflops.launch.rehearsal import THREADS
from vflops.launch.site import site_for
from vflops.launch.waiting import UnseenFolder, node_name, open_run
from vflops.machine.system.cpu_share import usable_cores
from vflops.machine.visible_devices import CUDA, slot_devices, visible_devices
from vflops.python_start import module_command
from vflops.record.files import atomic
from vflops.record.folder import RunFolder
from vflops.record.installed_package import installed_package

_FIRST_WORD_S = 120.0
"""How long a node waits for a controller that it has never seen."""
_SAY_S = 3.0
"""How long a node waits before it says for what."""
_UNSEEN_S = 10.0
"""How long a folder may take to appear on a shared file system."""
_ORPHANED_S = 600.0
"""How long a node without tasks waits for another controller after the last one has died."""
_PATIENCE_S = 90.0
"""How long its tasks may take to write checkpoints when the node leaves."""
_POLL_S = 0.2
_PROGRAMS = {"agent": "vflops.launch.agent", "ceilings": "vflops.launch.node_check"}

Say = Callable[[str], None]


def join_run(path: Path, say: Say) -> int:
    """Take tasks of the run until it has ended; return 0 if it ended well.

    Raise UsageError if the controller refuses the node, and Interrupted if it was asked to leave.
    """
    folder = open_run(path)
    owner = folder.path.stat().st_uid
    if owner != os.getuid():
        raise UsageError(
            f"{folder.path} belongs to the user with the id {owner}, and its jobs would run as you",
            hint="join runs that you have started yourself",
        )
    if folder.history(0).state.complete:
        raise UsageError(
            f"{folder.path} is complete: there is nothing to join",
            hint=f"see its report: vflops report {folder.path}",
        )
    _wait_for_controller(folder)
    cores, machine = len(usable_cores()), os.cpu_count() or 0
    if cores < machine:
        say(
            f"uses {cores} of the {machine} cores of {node_name()}: if that is not intended, start"
            " vflops join unbound, for example with mpiexec --bind-to none"
        )
    with SignalCounter() as stop:
        return JoinedNode(folder, say).run(stop)


class JoinedNode:
    """This node's part in a run."""

    def __init__(self, folder: RunFolder, say: Say) -> None:
        self._folder, self._run, self._say = folder, folder.path, say
        self._tasks: dict[str, subprocess.Popen[bytes]] = {}
        self._stops: dict[str, int] = {}
        self._me = describe(folder)
        controller = ControllerFile.read(controller_file(folder.path))
        self._first_beat, self._answers = controller.beat, True
        self._controller = SignOfLife(controller.beat, time.monotonic())

    def run(self, stop: SignalCounter) -> int:
        """Start and end tasks as the controller's orders say."""
        controller = ControllerFile.read(controller_file(self._run))
        orders: OrdersFile | None = None
        self._write()
        welcome, next_beat_s = False, 0.0
        while not stop.count:
            with suppress(FolderError):  # a shared file system may lose a file for a moment
                controller = ControllerFile.read(controller_file(self._run))
                orders = read_orders(self._run, self._me.token) or orders
            if orders is not None:
                if orders.refused is not None:
                    self._leave()
                    raise UsageError(orders.refused, hint=orders.hint)
                if not welcome:
                    self._say(f"joined {self._run.name} as {self._me.name}; waiting for its jobs")
                welcome = True
                self._follow(orders)
            running = self._running()
            # An older file may say how an earlier controller ended.
            is_new = controller.beat != self._first_beat
            if controller.over is not None and is_new and not running:
                self._leave()
                self._say(f"{self._run.name} {controller.over}")
                return 0 if controller.complete else RunFailed.exit_code
            self._watch_controller(controller, waiting=not running)
            if time.monotonic() >= next_beat_s or self._news():
                next_beat_s = time.monotonic() + BEAT_S
                if not welcome and self._me.clock.offset_s is None:
                    _, clock = offset_from_controller(self._folder)
                    self._me = self._me.model_copy(update={"clock": clock})
                with suppress(VflopsError):  # a full disk: the controller notices the silence
                    self._write()
            time.sleep(_POLL_S)
        self._end_tasks(stop)
        self._leave()
        raise Interrupted(
            f"{self._me.name} left {self._run.name}{stop.why}; its jobs continue on other nodes",
            hint=f"let it return: vflops join {self._run}",
        )

    def _follow(self, orders: OrdersFile) -> None:
        for task in orders.tasks:
            process = self._tasks.get(task.id)
            if process is None:
                if task.id not in self._me.ended and not (task.stops or task.killed):
                    self._start(task)
                elif task.id not in self._me.ended:  # it was stopped before it was started
                    self._me = self._ended({task.id: Interrupted.exit_code})
                continue
            if process.poll() is not None:
                continue
            if task.killed:
                _signal(process, signal.SIGKILL)
            elif task.stops > self._stops.get(task.id, 0):
                self._stops[task.id] = task.stops
                _signal(process, signal.SIGTERM)

    def _start(self, task: Task) -> None:
        variables = {
            GROUP: f"{task.node} {task.nodes} {task.token}",
            ADDRESS: self._me.address,
            PARENT: str(os.getpid()),
            **resources(task),
            **_site_variables(self._folder),
        }
        command = module_command(_PROGRAMS[task.program], self._run, *task.arguments)
        path = self._run / task.log
        try:
            with path.open("ab") as output:
                self._tasks[task.id] = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    start_new_session=True,
                    env={**os.environ, **variables},
                )
        except OSError as error:
            raise atomic.cannot_write(path, error) from error
        what = f"job {task.arguments[0]}" if task.program == "agent" else "measuring ceilings"
        self._say(what + (f", node {task.node + 1} of {task.nodes}" if task.nodes > 1 else ""))

    def _running(self) -> bool:
        return any(process.poll() is None for process in self._tasks.values())

    def _news(self) -> bool:
        """Note the exit codes of tasks that have ended; return whether there are any."""
        codes = {
            task: process.returncode
            for task, process in self._tasks.items()
            if task not in self._me.ended and process.poll() is not None
        }
        self._me = self._ended(codes)
        return bool(codes)

    def _ended(self, codes: Mapping[str, int]) -> NodeFile:
        return self._me.model_copy(update={"ended": {**self._me.ended, **codes}})

    def _watch_controller(self, controller: ControllerFile, *, waiting: bool) -> None:
        """Say if the controller is silent; give up if there is nothing left to do without it."""
        silent_s = self._controller.silent_s(controller.beat, time.monotonic())
        resume = f"vflops join --lead {self._run}"
        if silent_s > LOST_S and self._answers:
            self._say(f"no sign of life from the controller on {controller.host}: {resume}")
        elif silent_s < LOST_S and not self._answers:
            self._say(f"the run has a controller again, on {controller.host}")
        self._answers = silent_s <= LOST_S
        if silent_s > _ORPHANED_S and waiting:
            self._leave()
            raise RunFailed(
                f"{self._run.name} has had no controller for {_ORPHANED_S:g} s", hint=resume
            )

    def _end_tasks(self, stop: SignalCounter) -> None:
        """Ask all tasks to write checkpoints, and kill them after a while or a second signal."""
        for process in self._tasks.values():
            _signal(process, signal.SIGTERM)
        end_s = time.monotonic() + _PATIENCE_S
        while self._running() and time.monotonic() < end_s and stop.count < 2:
            with suppress(VflopsError):
                self._write()
            time.sleep(_POLL_S)
        for process in self._tasks.values():
            _signal(process, signal.SIGKILL)

    def _leave(self) -> None:
        """Say so in the file; the exit codes come with it."""
        for process in self._tasks.values():
            with suppress(subprocess.TimeoutExpired):
                process.wait(timeout=5)
        self._news()
        self._me = self._me.model_copy(update={"leaving": True})
        with suppress(VflopsError):  # the disk may be full
            self._write()

    def _write(self) -> None:
        self._me = self._me.model_copy(update={"beat": self._me.beat + 1})
        self._me.write(node_file(self._run, self._me.token), private=True)


def describe(folder: RunFolder) -> NodeFile:
    """Return this node as it presents itself to the controller; it imports torch."""
    from vflops.machine.devices import available

    _, clock = offset_from_controller(folder)
    name = node_name()
    return NodeFile(
        token=f"{name}-{os.urandom(4).hex()}",
        name=name,
        address=_address(folder),
        pid=os.getpid(),
        package_sha256=installed_package().sha256,
        versions={
            "vflops": vflops.__version__,
            "Python": platform.python_version(),
            "torch": metadata.version("torch"),
        },
        cores=len(usable_cores()),
        accelerators=len(available()) - 1,
        clock=clock,
    )


def newest_open_run(path: Path, say: Say) -> Path:
    """Return ``path`` or, if it is a folder of runs, the newest one that waits for nodes.

    A run that is being created is waited for, because a job script starts both at once. Raise
    UnseenFolder if the folder does not appear on this node.
    """
    start_s = time.monotonic()
    beats: dict[Path, int] = {}
    said = False
    while True:
        if (path / "run.json").is_file():
            return path
        for file in sorted(path.glob(f"*/{FOLDER}/controller.json"), reverse=True):
            with suppress(VflopsError):
                controller = ControllerFile.read(file)
                # A controller that was killed could not say that the run is over.
                first = beats.setdefault(file, controller.beat)
                if controller.over is None and controller.beat != first:
                    return file.parents[1]
        waited_s = time.monotonic() - start_s
        if waited_s > _SAY_S and not said:
            what = "that waits for nodes in" if path.is_dir() else "folder or a folder of runs:"
            say(f"waiting up to {_FIRST_WORD_S:g} s for a run {what} {path.resolve()}")
            said = True
        if waited_s > _UNSEEN_S and not path.is_dir():
            raise UnseenFolder(path.resolve())
        if waited_s > _FIRST_WORD_S:
            raise UsageError(
                f"{path} is neither a run nor a folder with a run that nodes can join",
                hint="start one: vflops run WORKLOAD --on join --nodes N --out FOLDER",
            )
        with suppress(OSError):
            os.listdir(path)  # noqa: PTH208  drops what NFS caches as absent
        time.sleep(_POLL_S)


def _wait_for_controller(folder: RunFolder) -> None:
    """Wait for a controller; raise UsageError if none has ever been seen from this node."""
    end_s = time.monotonic() + _FIRST_WORD_S
    while not controller_file(folder.path).is_file():
        on = folder.record.settings.launch.on
        if on != "join" or time.monotonic() > end_s:
            raise UsageError(
                f"no controller of {folder.path} waits for nodes: "
                + (f"its jobs run on {on}" if on != "join" else "none is seen from this node"),
                hint=f"lead it from here: vflops join --lead {folder.path}"
                if on == "join"
                else "start a run for nodes that join: vflops run WORKLOAD --on join --nodes N",
            )
        time.sleep(_POLL_S)


def _address(folder: RunFolder) -> str:
    """Return the address of this node's interface towards the controller and the other nodes."""
    from vflops.launch.clock_server import LOOPBACK, interface_towards

    hosts = {node.address for node in read_nodes(folder.path)}
    with suppress(VflopsError):
        hosts.add(ControllerFile.read(controller_file(folder.path)).host)
    found = interface_towards(hosts - {socket.gethostname()}) or interface_towards(())
    return found if found and found != LOOPBACK else socket.gethostname()


def resources(task: Task) -> dict[str, str]:
    """Return the variables with the cores and accelerators of the task's slots."""
    if task.shares:
        variables = {CORES: ",".join(map(str, usable_cores()))}
        return variables | ({THREADS: "1"} if task.node_slots > len(usable_cores()) else {})
    per_slot = task.gpus_per_slot
    devices = slot_devices(task.node_slots * per_slot) if per_slot else []
    gpus = visible_devices({CUDA: ",".join(devices)})
    parts = split_cores(
        Topology.read(),
        usable_cores(),
        task.node_slots,
        gpus=gpus[::per_slot] if per_slot else (),
        cores_per_slot=task.cores_per_slot,
    )
    cores = [core for slot in task.slots for core in parts[slot].cores]
    variables = {CORES: ",".join(map(str, cores))}
    if per_slot:
        mine = (devices[slot * per_slot : (slot + 1) * per_slot] for slot in task.slots)
        variables[CUDA] = ",".join(device for part in mine for device in part)
    return variables


def _site_variables(folder: RunFolder) -> dict[str, str]:
    """Return the variables of ``site.toml``; a site's modules are loaded by its own launcher."""
    site = site_for(folder.record.settings.launch, folder.path)
    values = dict(site.environment)
    if site.local_path is not None:
        values[LOCAL_PATH] = site.local_path
    return {name: os.path.expandvars(value) for name, value in values.items()}


def _signal(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    if process.poll() is None:
        with suppress(ProcessLookupError):
            process.send_signal(number)
