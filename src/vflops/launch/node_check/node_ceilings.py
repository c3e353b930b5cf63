"""The ceilings of a run's node, and of its links to the others.

A job script starts it on every node before the first job: RANKS is the number of ranks of a job,
SLOTS that of all jobs on a node. What one allocation measured is not measured again by the next
one, so a requeued or resumed job starts at once.
"""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path

from vflops.config.settings import MicroSettings
from vflops.errors import VflopsError
from vflops.launch.node_check.exchange import (
    CLAIM,
    LOCK,
    Exchange,
    Present,
    ceilings_exchange,
    link_backend,
    links_s,
    plan_file,
)
from vflops.launch.node_check.link_results import links_measured
from vflops.launch.node_check.link_tasks import LinkPlan, Rounds, ceiling_rounds
from vflops.launch.node_group import NodeGroup
from vflops.launch.node_layout import NodeLayout
from vflops.launch.waiting import node_name, open_run, reserved_ports
from vflops.machine.ceilings.measure import measure, planned_items
from vflops.machine.devices import available, pick
from vflops.machine.host import HostLoad
from vflops.machine.system.gather import gather
from vflops.record.files import atomic
from vflops.record.folder import RunFolder
from vflops.record.formats.measured_node import (
    FOLDER,
    MeasuredNode,
    links_file,
    measured_node_file,
)
from vflops.record.formats.measurement import Loaded, Measurement

QUICK_SHARE, LINKS_SHARE = 0.2, 0.2
"""The shares of the time budget for the quick measurement of all nodes and for the links; the rest
is for the full set on one node of each kind."""
_QUICK = ("gemm", "memory")
_LINKS = "all-reduce"
"""The benchmark that asks for the links; the ranks of one machine are not measured besides."""
_MEETINGS = ("measured", "linked")
_CONNECT_S = 20.0
"""How long the ranks of a task may take to connect."""
_START_S = 120.0
"""How long the nodes may take to import torch from a busy file system."""


def main(run: str, ranks: str, slots: str) -> int:
    """Measure this node and its links to the others; return the exit code."""
    name = node_name()
    try:
        folder = open_run(Path(run))
        micro = folder.record.settings.micro
        # A node that hangs must not keep the others from training.
        signal.alarm(int(limit_s(micro)))
        NodeCeilings(folder, NodeGroup.of(), name, NodeLayout(int(ranks), int(slots))).run()
    except VflopsError as error:
        print(f"{name}: its ceilings were not measured: {error.message}", file=sys.stderr)
        return error.exit_code
    return 0


def limit_s(micro: MicroSettings) -> float:
    """Return how long a node may take in all."""
    return 2 * _START_S + 2 * micro.budget_s + 120


class NodeCeilings:
    """One node's part in the measurements."""

    def __init__(self, folder: RunFolder, group: NodeGroup, name: str, layout: NodeLayout) -> None:
        self._folder, self._name, self._layout = folder, name, layout
        self._micro, self._seed = folder.record.settings.micro, folder.record.settings.seed
        self._address = group.address or socket.gethostname()
        self._token = group.token or f"{name}-{os.getpid()}"
        path = ceilings_exchange(folder.path, self._token)
        self._exchange = Exchange(path, group.node, range(group.nodes))

    def run(self) -> None:
        """Measure the node, unless that was done before, then the links between all nodes."""
        exchange = self._exchange
        rounds: Rounds = ()
        if _LINKS in self._micro.benchmarks:
            rounds = ceiling_rounds(len(exchange.nodes), self._layout)
        accelerators = available()[1:]
        kind = accelerators[0].partition(":")[0] if accelerators else None
        with reserved_ports(len(rounds)) as ports:
            present = Present(
                token=self._token,
                name=self._name,
                address=self._address,
                ports=ports,
                accelerator=kind,
            )
            exchange.introduce(present)
            everyone = not exchange.absent(_START_S)
            if not (everyone and self._all_known(rounds)):
                self._measure(rounds, everyone)
        self._leave()

    def _measure(self, rounds: Rounds, everyone: bool) -> None:
        """Measure the node and, if all nodes take part, the links between them."""
        with self._alone_on_the_node():
            if not measured_node_file(self._folder.path, self._name).is_file():
                self._measure_node()
        # The node that measures the full set arrives last.
        if everyone and self._exchange.meet("measured", self._micro.budget_s + 60):
            self._measure_links(rounds)

    def _all_known(self, rounds: Rounds) -> bool:
        """Whether an earlier allocation has measured all nodes and the links between them."""
        run, names = self._folder.path, self._names
        return all(measured_node_file(run, name).is_file() for name in names) and (
            not rounds or self._links_file.is_file()
        )

    def _leave(self) -> None:
        """Let no other node wait for this one."""
        for word in _MEETINGS:
            self._exchange.reach(word)
        if self._exchange.node == 0:
            self._exchange.finish()

    @property
    def _names(self) -> list[str]:
        return [self._exchange.present(node).name for node in self._exchange.nodes]

    @property
    def _links_file(self) -> Path:
        layout = self._layout
        return links_file(self._folder.path, self._names, layout.ranks, layout.slots)

    @contextmanager
    def _alone_on_the_node(self) -> Iterator[None]:
        """Wait while another job of the run measures the same node."""
        with (self._folder.path / FOLDER / f"{self._name}{LOCK}").open("w") as file:
            with suppress(OSError):  # some shared file systems have no locks
                fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def _measure_node(self) -> None:
        folder = self._folder.path
        system = gather(folder)
        kind = system.kind
        quick, faults = [], []
        try:
            quick = list(self._quick())
        except VflopsError as error:  # such as a device that this node lacks
            faults.append(error.message)
        planned, full, loads = [], [], []
        if not faults and self._claim(kind):
            micro = self._share(
                1 - QUICK_SHARE - LINKS_SHARE,
                benchmarks=tuple(name for name in self._micro.benchmarks if name != _LINKS),
            )
            planned = [item.key for item in planned_items(micro)]
            load = HostLoad()
            for item in measure(micro, seed=self._seed, folder=folder):
                full.append(item.model_copy(update={"node": self._name, "kind": kind}))
                loads.append(
                    Loaded(
                        others_share=load.others_share(),
                        stolen_share=load.stolen_share(),
                        programs=load.programs(),
                        node=self._name,
                    )
                )
        MeasuredNode(
            node=self._name,
            host=socket.gethostname(),
            allocation=self._token,
            kind=kind,
            system=system,
            quick=tuple(quick),
            planned=tuple(planned),
            full=tuple(full),
            loads=tuple(loads),
            faults=tuple(faults),
        ).write(measured_node_file(folder, self._name))

    def _quick(self) -> Iterator[Measurement]:
        """Measure every accelerator in turn, or the CPU."""
        benchmarks = tuple(name for name in _QUICK if name in self._micro.benchmarks)
        if not benchmarks:
            return
        device = pick(self._micro.device)
        kind = device.torch_device.type
        several = device.accelerators > 1 and ":" not in self._micro.device
        devices = [f"{kind}:{n}" for n in range(device.accelerators)] if several else [device.name]
        for name in devices:
            micro = self._share(
                QUICK_SHARE / len(devices),
                benchmarks=benchmarks,
                precisions=self._micro.precisions[:1],
                device=name,
            )
            for item in measure(micro, seed=self._seed, folder=self._folder.path):
                yield item.model_copy(update={"node": self._name, "tried": ()})

    def _share(self, share: float, **changes: object) -> MicroSettings:
        """Return the settings with a share of the time budget."""
        return self._micro.model_copy(update={"budget_s": share * self._micro.budget_s, **changes})

    def _claim(self, kind: str) -> bool:
        """Return whether this node is the one of its kind that measures the full set."""
        digest = sha256(kind.encode()).hexdigest()[:12]
        path = self._folder.path / FOLDER / f"{CLAIM}{digest}"
        try:
            with path.open("x") as file:
                file.write(self._token)
        except FileExistsError:
            if path.read_text() in ("", self._token):
                return False
            atomic.write_text(path, self._token)  # of an earlier allocation
        return not self._full_set_exists(kind)

    def _full_set_exists(self, kind: str) -> bool:
        files = (self._folder.path / FOLDER).glob("*.json")
        return any((node := MeasuredNode.read(path)).kind == kind and node.full for path in files)

    def _measure_links(self, rounds: Rounds) -> None:
        exchange, file = self._exchange, self._links_file
        if not rounds or file.is_file():
            return
        plan = self._plan(rounds)
        if exchange.node == 0:
            plan.write(plan_file(exchange.path))
        fault = exchange.measure_links(plan)
        exchange.meet("linked", links_s(plan))
        if fault:
            print(f"{self._name}: its links were not measured: {fault}", file=sys.stderr)
        if exchange.node == 0:
            atomic.make_folder(file.parent)
            links_measured(exchange, plan, self._names).write(file)

    def _plan(self, rounds: Rounds) -> LinkPlan:
        nodes = tuple(self._exchange.nodes)
        return LinkPlan(
            nodes=nodes,
            backend=link_backend([self._exchange.present(node) for node in nodes]),
            rounds=rounds,
            connect_s=_CONNECT_S,
            seconds=LINKS_SHARE * self._micro.budget_s / len(rounds),
            seed=self._seed,
        )
