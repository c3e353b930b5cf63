"""Runs jobs on the nodes that join the run, whatever started them there."""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any

from vflops.config.launch import LaunchSettings
from vflops.errors import Interrupted, Left, RunFailed, UsageError, VflopsError
from vflops.launch import site
from vflops.launch.agent_report import AgentReport, last_report
from vflops.launch.job_history import nodes_that_lost_jobs
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
    orders_file,
    read_nodes,
    read_orders,
)
from vflops.launch.join.node_sizes import NodeSizes, sizes_of_run
from vflops.launch.launcher import Ending, How, Launcher
from vflops.launch.node_clock import serve_clock
from vflops.launch.placement import Node
from vflops.launch.sizing import sized, this_machine
from vflops.record.files import atomic
from vflops.record.folder import RunFolder
from vflops.record.formats.job import JobRecord
from vflops.record.installed_package import installed_package
from vflops.text import printable
from vflops.units import count as number_of

_WRONG_CLOCK_S = 10.0
"""A node whose clock differs by more is refused, as by a preflight."""
_CLOCK_S = 15.0
"""How long a node may take to read this machine's clock, for example after an earlier controller's
that died."""
_LOOK_S = 0.2
"""How often the files of the nodes are read."""


@dataclass
class _JoinedNode:
    """A node as the controller sees it."""

    file: NodeFile
    orders: OrdersFile
    life: SignOfLife
    admitted: bool = False
    """Whether it has orders, of this controller or an earlier one."""
    lost: bool = False
    waits_since_s: float | None = None
    """When this controller first saw that it is alive and waits for orders."""
    free: set[int] = field(default_factory=set)

    @property
    def usable(self) -> bool:
        """Whether it can be given tasks: it was admitted, and has been seen alive."""
        welcome = self.admitted and not self.orders.refused
        return welcome and self.life.seen and not (self.lost or self.file.leaving)


class JoinLauncher(Launcher):
    """Nodes that join the run by vflops join, whatever starts it there.

    Each node has a long-lived agent that takes tasks.
    """

    name = "join"
    nodes_join = True

    @classmethod
    def check(cls, settings: LaunchSettings) -> None:
        """Raise UsageError if the number of nodes is missing, or a container is named."""
        if settings.nodes is None:
            raise UsageError(
                "--on join without --nodes",
                hint="add --nodes N, the number of nodes that will run vflops join",
            )
        site.site_for(settings)
        if settings.container is not None or site.find_site().container is not None:
            raise UsageError(
                "nodes that join a run start their own container",
                hint="leave the container out here, and run vflops join in it on every node",
            )

    @classmethod
    def nodes(cls, settings: LaunchSettings, device: str) -> list[Node]:
        """Return as many nodes as will join; they are assumed to be like this machine."""
        here = this_machine(device)
        names = [f"node {number}" for number in range(1, (settings.nodes or 1) + 1)]
        nodes = sized([replace(here, name=name) for name in names], settings, device)
        if not nodes and settings.ranks_per_node is not None:  # described by the user
            slots, gpus = settings.ranks_per_node, settings.gpus_per_rank or 0
            nodes = [Node(name, slots, None, gpus, fixed=True) for name in names]
        if not nodes:
            raise UsageError(
                f"this machine has {number_of(here.cores, 'core')} and"
                f" {number_of(here.gpus, 'accelerator')} and takes no rank of the run; the nodes"
                " that will join are assumed to be like it",
                hint="start the run on one of the nodes, or describe them:"
                " --set launch.ranks_per_node=R",
            )
        return nodes

    @classmethod
    def gang_scheduled(cls, settings: LaunchSettings) -> bool:
        """Return True: all jobs start as soon as all nodes have joined."""
        return True

    @classmethod
    def nodes_reserved(cls) -> bool:
        """Return True: whoever starts the nodes has reserved them."""
        return True

    @classmethod
    @contextmanager
    def controlling(cls, folder: RunFolder) -> Iterator[None]:
        """Serve this machine's clock and show the nodes that the controller lives, then its end."""
        path = controller_file(folder.path)
        atomic.make_folder(path.parent)
        site.copy_to_run(folder.path)
        ended = threading.Event()
        beats = count(int(time.time()))  # above those of earlier controllers

        def write(over: str | None = None, *, complete: bool = False) -> None:
            ControllerFile(
                host=socket.gethostname(),
                pid=os.getpid(),
                beat=next(beats),
                over=over,
                complete=complete,
            ).write(path, private=True)

        def show_life() -> None:
            while not ended.wait(BEAT_S):
                with suppress(VflopsError):  # the disk may be full for a while
                    write()

        over, complete = "was interrupted", False
        beating = threading.Thread(target=show_life, name="vflops-join", daemon=True)
        try:
            with serve_clock(folder):
                write()
                beating.start()
                _say(f"on every node: vflops join {folder.path}")
                yield
            over, complete = "is complete", True
        except VflopsError as error:
            if isinstance(error, Left):
                over = ""
            elif not isinstance(error, Interrupted):
                over = f"has failed: {error.message}"
            raise
        finally:
            ended.set()
            if beating.is_alive():
                beating.join()
            if over:
                with suppress(VflopsError):
                    write(over, complete=complete)

    @classmethod
    def release(cls, folder: RunFolder) -> None:
        """Tell the nodes that the run was cancelled."""
        path = controller_file(folder.path)
        if path.is_file():
            file = ControllerFile.read(path)
            changes = {"over": file.over or "was cancelled", "beat": file.beat + 1}
            file.model_copy(update=changes).write(path, private=True)

    def __init__(self, folder: RunFolder, records: Sequence[JobRecord]) -> None:
        settings = folder.record.settings
        self._folder, self._run, self._settings = folder, folder.path, settings.launch
        self._records = {record.job: record for record in records}
        self._wanted = self._settings.nodes or 1
        device = records[0].settings["train"]["device"]
        self._sizes = NodeSizes(self._settings, device, records[0].ranks)
        self._layout = self._sizes.layout
        self._measures = bool(settings.micro.benchmarks) and not settings.launch.rehearse
        self._nodes: dict[str, _JoinedNode] = {}
        self._reasons: dict[int, str] = {}
        self._last: dict[int, tuple[str, ...]] = {}
        self._read_from: dict[Path, int] = {}
        self._looked_s, self._controls = float("-inf"), False
        self._versions: dict[str, str] | None = None
        self._begun = any(folder.next_attempt(job) for job in self._records)
        self._look()

    def start(self, jobs: Mapping[int, int]) -> Collection[int]:
        """Start those of the jobs for which there is room, once all nodes have joined."""
        if not self._controls:
            self._controls = True  # only a controller writes orders
            self._kill_halves()
        self._look()
        if not self._all_present():
            return ()
        self._require_room()
        self._measure()
        if not self._begun and not all(map(self._measured, self._usable())):
            return ()
        faulty = nodes_that_lost_jobs(self._folder)
        started = [job for job in jobs if self._start(job, faulty)]
        self._begun = self._begun or bool(started)
        return started

    def active_jobs(self) -> Collection[int]:
        """Return the jobs with a task that has not ended, on nodes that live."""
        self._look()
        return {int(task.arguments[0]) for _, task in self._active() if task.program == "agent"}

    def location(self, job: int) -> str:
        """Return the job's nodes, or which nodes are missing."""
        if job in self.active_jobs():
            return ", ".join(self._last.get(job, ()))
        names = [node.file.name for node in self._usable()]
        if not self._begun and len(names) < self._wanted:
            known = f": {', '.join(names)} joined" if names else ""
            missing = self._wanted - len(names)
            return f"waiting for {missing} of {self._wanted} nodes{known}"
        if not names:
            return "no node is left: run vflops join on one"
        if not all(map(self._measured, self._usable())):
            return "measuring ceilings"
        room = number_of(self._layout.ranks_per_node, "rank")
        needed = self._layout.nodes
        nodes = f"{needed} nodes with room for {room} each" if needed > 1 else f"room for {room}"
        return f"waiting for {nodes}; {', '.join(names)} joined"

    def ending(self, job: int) -> Ending:
        """Return that a node of the job was lost or has left, or the last report of its agents."""
        report, nodes = self._report(job), self._last.get(job, ())
        if job in self._reasons:
            lost = {node.file.name for node in self._nodes.values() if node.lost}
            nodes = tuple(name for name in nodes if name in lost)
        elif report is not None and not report.may_be_the_node:
            nodes = ()
        how: How = "fault"
        if report is not None and report.outcome == "elsewhere":
            how = "elsewhere"
        elif report is not None and report.outcome in ("limit", "stopped"):
            how = "limit"  # its node leaves
        return Ending(how, self._reasons.get(job), report, nodes)

    def stop(self) -> None:
        """Ask all tasks to write a checkpoint and end."""
        self._change({"stops": 1})

    def kill(self) -> None:
        """End all tasks."""
        self._change({"killed": True})

    def _change(self, change: Mapping[str, object]) -> None:
        for node in self._nodes.values():
            active = {task.id for owner, task in self._active() if owner is node}
            if not active:
                continue
            tasks = []
            for task in node.orders.tasks:
                if task.id in active:
                    stops = task.stops + int("stops" in change)
                    task = task.model_copy(update={**change, "stops": stops})
                tasks.append(task)
            self._give(node, tuple(tasks))

    def _look(self) -> None:
        """Read what the nodes write; admit new ones and notice those that are lost."""
        if time.monotonic() - self._looked_s < _LOOK_S:
            return
        files = list(read_nodes(self._run))
        now_s = time.monotonic()
        if LOST_S / 2 < now_s - self._looked_s < float("inf"):
            # This machine or the file server did not respond: no sign of life could be seen.
            for known in self._nodes.values():
                known.life.excuse(now_s - self._looked_s)
        self._looked_s = now_s
        for file in files:
            node = self._nodes.get(file.token)
            if node is None:
                orders = read_orders(self._run, file.token)
                life = SignOfLife(file.beat, now_s)
                node = _JoinedNode(file, orders or OrdersFile(), life, orders is not None)
                self._nodes[file.token] = node
                if orders is not None:
                    self._adopt(node)
            node.file = file
            silent_s = node.life.silent_s(file.beat, now_s)
            if node.lost:  # it may have been suspended; its tasks were given away
                node.lost = silent_s > LOST_S
            elif not (file.leaving or node.orders.refused) and silent_s > LOST_S:
                self._lose(node, silent_s)
            self._free_slots(node)
        for known in self._nodes.values():
            waits = not (known.admitted or known.lost or known.file.leaving)
            if self._controls and waits and known.life.seen:
                self._admit(known)

    def _admit(self, node: _JoinedNode) -> None:
        """Give the node its first orders: none yet, or why it is refused.

        If another node of its name may still live, wait until that is known; and for its clock.
        """
        twins = [
            other
            for other in self._nodes.values()
            if other is not node
            and other.file.name == node.file.name
            and not (other.lost or other.file.leaving or other.orders.refused)
        ]
        if any(not other.life.seen for other in twins):
            return
        if node.waits_since_s is None:
            node.waits_since_s = time.monotonic()
        unread = node.file.clock.offset_s is None
        if unread and not twins and time.monotonic() - node.waits_since_s < _CLOCK_S:
            return
        reason = self._refusal(node, twins)
        refused, hint = reason or (None, None)
        node.orders = OrdersFile(refused=refused, hint=hint)
        node.orders.write(orders_file(self._run, node.file.token), private=True)
        node.admitted = True
        if refused is not None:
            _say(f"refused {node.file.name}: {refused}")
            return
        self._versions = self._versions or node.file.versions
        self._free_slots(node)
        _say(f"{node.file.name} has joined: {self._resources(node)}")

    def _adopt(self, node: _JoinedNode) -> None:
        """Take over a node of an earlier controller."""
        if node.usable:
            self._versions = self._versions or node.file.versions
        for task in self._unfinished(node):
            if task.program == "agent":
                job = int(task.arguments[0])
                self._last[job] = (*self._last.get(job, ()), node.file.name)
        self._free_slots(node)

    def _refusal(self, node: _JoinedNode, twins: Sequence[_JoinedNode]) -> tuple[str, str] | None:
        """Return why the node gets no jobs, and what to do; None if it is welcome."""
        file, clock = node.file, node.file.clock
        if twins:
            return (
                f"{file.name} has joined already (process {twins[0].file.pid} there)",
                "start vflops join once on every node",
            )
        own = installed_package().sha256
        if file.package_sha256 != own:
            return (
                f"{file.name} has another vflops than the controller on {socket.gethostname()}",
                "use one installation on all nodes",
            )
        for part, version in file.versions.items():
            if self._versions is not None and self._versions.get(part) != version:
                return (
                    f"{file.name} has {part} {version}, the other nodes {self._versions.get(part)}",
                    "use one installation on all nodes",
                )
        if clock.offset_s is None:
            return (
                f"the clock of {file.name} cannot be compared with that of {socket.gethostname()}:"
                f" {clock.fault}",
                "allow connections from the nodes to the machine of the controller, and join again",
            )
        if abs(clock.offset_s) - (clock.uncertainty_s or 0.0) > _WRONG_CLOCK_S:
            return (
                f"the clock of {file.name} differs by {clock.offset_s:+.1f} s from that of "
                f"{socket.gethostname()}",
                "correct it, for example with chrony, and join again",
            )
        others = [other.file for other in self._usable()]
        needs = [self._sizes, *sizes_of_run(self._folder.record.settings)]
        return next(filter(None, (sizes.refusal(file, others) for sizes in needs)), None)

    def _resources(self, node: _JoinedNode) -> str:
        text = f"{node.file.cores} cores"
        if node.file.accelerators:
            idle = self._sizes.idle_accelerators(node.file)
            text += f", {node.file.accelerators} accelerators"
            text += f" ({idle} of them stay idle)" if idle > 0 else ""
        return f"{text}; {len(self._usable())} of {self._wanted} nodes"

    def _lose(self, node: _JoinedNode, silent_s: float) -> None:
        """Give up a node: end what its jobs have on other nodes."""
        node.lost = True
        tasks = [task for task in self._unfinished(node) if not task.killed]
        if not (node.life.seen or tasks):  # a node of an earlier controller, long gone
            return
        text = f"{node.file.name} is lost: no sign of life for {silent_s:.0f} s"
        _say(text)
        for task in tasks:
            if task.program == "agent":
                self._reasons[int(task.arguments[0])] = text
        if self._controls:
            self._kill_tasks({task.token for task in tasks if task.program == "agent"})

    def _kill_tasks(self, tokens: Collection[str]) -> None:
        """End tasks on all nodes; one that comes back must not go on with them."""
        for node in self._nodes.values():
            tasks = tuple(
                task.model_copy(update={"killed": True}) if task.token in tokens else task
                for task in node.orders.tasks
            )
            if tasks != node.orders.tasks:
                self._give(node, tasks)

    def _kill_halves(self) -> None:
        """End tasks that an earlier controller had not given to all of their nodes."""
        given = Counter(task.token for node in self._nodes.values() for task in node.orders.tasks)
        tasks = (task for node in self._nodes.values() for task in node.orders.tasks)
        self._kill_tasks({task.token for task in tasks if given[task.token] < task.nodes})

    def _usable(self) -> list[_JoinedNode]:
        return [node for node in self._nodes.values() if node.usable]

    def _unfinished(self, node: _JoinedNode) -> list[Task]:
        return [task for task in node.orders.tasks if task.id not in node.file.ended]

    def _active(self) -> list[tuple[_JoinedNode, Task]]:
        return [
            (node, task)
            for node in self._nodes.values()
            if not (node.lost or node.file.leaving)
            for task in self._unfinished(node)
        ]

    def _free_slots(self, node: _JoinedNode) -> None:
        slots, tasks = self._layout.slots, self._unfinished(node)
        if not self._sizes.takes(node.file) or any(task.node_slots != slots for task in tasks):
            node.free = set()  # too small, or still divided for other jobs
        else:
            node.free = set(range(slots)) - {slot for task in tasks for slot in task.slots}

    def _all_present(self) -> bool:
        """Whether jobs can start: all nodes have joined, or jobs have been started before."""
        number = len(self._usable())
        return number >= (1 if self._begun else self._wanted)

    def _measure(self) -> None:
        """Have nodes measure their ceilings: the first ones together, later ones alone."""
        new = [node for node in self._usable() if not self._measured(node, begun=True)]
        if self._begun:
            for node in new:
                self._measure_together([node])
        elif new:
            self._measure_together(self._usable())

    def _measure_together(self, nodes: Sequence[_JoinedNode]) -> None:
        token = f"ceilings-{os.urandom(4).hex()}"
        slots = self._layout.slots
        for number, node in enumerate(nodes):
            task = Task(
                id=token,
                program="ceilings",
                arguments=(str(self._layout.ranks), str(slots)),
                node=number,
                nodes=len(nodes),
                token=token,
                slots=tuple(range(slots)),
                **self._division(),
                log=f"{FOLDER}/{node.file.name}.ceilings.log",
            )
            self._give(node, (*node.orders.tasks, task))
            self._free_slots(node)

    def _measured(self, node: _JoinedNode, *, begun: bool = False) -> bool:
        """Whether a node has measured its ceilings or, if ``begun``, at least begun to."""
        ended = node.file.ended.keys()
        tasks = [task.id for task in node.orders.tasks if task.program == "ceilings"]
        return not self._measures or any(begun or task in ended for task in tasks)

    def _start(self, job: int, faulty: Collection[str]) -> bool:
        """Give a job to nodes with room for it; return whether there were any."""
        chosen = self._choose(faulty)
        if not chosen:
            return False
        token = f"job-{job}-{os.urandom(4).hex()}"
        self._reasons.pop(job, None)
        self._last[job] = tuple(node.file.name for node in chosen)
        for path in self._logs(job):
            self._read_from[path] = path.stat().st_size
        for number, node in enumerate(chosen):
            slots = tuple(sorted(node.free))[: self._layout.ranks_per_node]
            task = Task(
                id=token,
                program="agent",
                arguments=(str(job),),
                node=number,
                nodes=len(chosen),
                token=token,
                slots=slots,
                **self._division(),
                log=f"jobs/{job}/agent{f'-{node.file.name}' if number else ''}.log",
            )
            self._give(node, (*node.orders.tasks, task))
            self._free_slots(node)
        return True

    def _choose(self, faulty: Collection[str]) -> list[_JoinedNode]:
        """Return the nodes for a job: those with the least room first.

        Those that lost jobs are used only if there are no others.
        """
        ready = [node for node in self._usable() if self._measured(node)]
        healthy = [node for node in ready if node.file.name not in faulty]
        nodes = sorted(healthy or ready, key=lambda node: len(node.free))
        room = [node for node in nodes if len(node.free) >= self._layout.ranks_per_node]
        return room[: self._layout.nodes] if len(room) >= self._layout.nodes else []

    def _division(self) -> dict[str, Any]:
        """Return how the nodes are divided for the jobs, as fields of a task."""
        share = self._sizes.share([node.file for node in self._usable()])
        return {
            "node_slots": self._layout.slots,
            "cores_per_slot": share.cores,
            "gpus_per_slot": share.gpus,
            "shares": self._settings.rehearse,
        }

    def _require_room(self) -> None:
        """Raise RunFailed if the jobs would not fit even if all known nodes returned."""
        known = [node for node in self._nodes.values() if node.admitted and not node.orders.refused]
        fitting = {node.file.name for node in known if self._sizes.takes(node.file)}
        if len(fitting) < self._layout.nodes:
            names = ", ".join(sorted({node.file.name for node in known}))
            raise RunFailed(
                f"a job with {number_of(self._layout.ranks, 'rank')} needs"
                f" {number_of(self._layout.nodes, 'node')} with room for"
                f" {number_of(self._layout.ranks_per_node, 'rank')}; {len(fitting)} of those that"
                f" joined have it: {names}",
                hint=f"let larger nodes join: vflops resume {self._run}",
            )

    def _give(self, node: _JoinedNode, tasks: tuple[Task, ...]) -> None:
        node.orders = node.orders.model_copy(update={"tasks": tasks})
        node.orders.write(orders_file(self._run, node.file.token), private=True)

    def _report(self, job: int) -> AgentReport | None:
        """Return the newest report of the job's agents; the first node's says most."""
        outputs = (path.read_bytes()[self._read_from.get(path, 0) :] for path in self._logs(job))
        reports = (last_report(output, job) for output in outputs)
        return next((report for report in reports if report is not None), None)

    def _logs(self, job: int) -> list[Path]:
        return sorted(
            self._folder.job_file(job).parent.glob("agent*.log"), key=lambda p: len(p.name)
        )


def _say(text: str) -> None:
    print(f"  {printable(text)}", file=sys.stderr, flush=True)
