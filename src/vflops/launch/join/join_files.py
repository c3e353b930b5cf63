"""The files by which a controller and the nodes that joined its run talk to each other.

RUN/join/controller.json      written by the controller: it lives, or the run has ended
RUN/join/<token>.node.json    written by a node: who it is, that it lives, how its tasks are
RUN/join/<token>.orders.json  written by the controller: what this node is to do

Each file has one writer, which replaces it as a whole, so no locks are needed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import ClassVar, Literal

from pydantic import Field

from vflops.errors import FolderError
from vflops.record.files.document import Data, Document
from vflops.record.formats.node import Clock

FOLDER = "join"
BEAT_S = 1.0
"""How often a controller and the nodes show that they live."""
LOST_S = 10.0
"""A node that shows no sign of life for so long is lost."""
_NODE, _ORDERS = ".node.json", ".orders.json"


class ControllerFile(Document):
    """``controller.json``: the process that gives the nodes their tasks."""

    schema_name: ClassVar[str] = "vflops.join-controller"

    host: str
    pid: int
    beat: int
    over: str | None = None
    """Why it gives no more tasks: how the run ended; None while it goes on."""
    complete: bool = False
    """Whether the run has ended well."""


class Task(Data):
    """A program that a node is to run."""

    id: str
    program: Literal["agent", "ceilings"]
    arguments: tuple[str, ...]
    node: int
    """The number of this node among those that run the task together."""
    nodes: int
    token: str
    """The same on all nodes of the task."""
    slots: tuple[int, ...]
    """The slots of this node that the task may use."""
    node_slots: int
    """Into how many equal slots the node is divided for this task."""
    cores_per_slot: int
    gpus_per_slot: int = 0
    shares: bool = False
    """Whether each slot has all that the node has: those of a rehearsal."""
    log: str
    """The file in the run folder that takes its output."""
    stops: int = 0
    """How often it was asked to write a checkpoint and end."""
    killed: bool = False


class OrdersFile(Document):
    """``<token>.orders.json``: all tasks that a node was given."""

    schema_name: ClassVar[str] = "vflops.join-orders"

    tasks: tuple[Task, ...] = ()
    refused: str | None = None
    """Why the node gets no tasks."""
    hint: str | None = None


class NodeFile(Document):
    """``<token>.node.json``: a node, its resources, and the tasks that it has started."""

    schema_name: ClassVar[str] = "vflops.join-node"

    token: str
    name: str
    address: str
    pid: int
    package_sha256: str | None
    versions: dict[str, str]
    cores: int
    accelerators: int
    clock: Clock
    beat: int = 0
    leaving: bool = False
    ended: dict[str, int] = Field(default_factory=dict)
    """The exit codes of tasks that have ended, by id."""


def controller_file(run: Path) -> Path:
    """Return the path of the controller's file."""
    return run / FOLDER / "controller.json"


def node_file(run: Path, token: str) -> Path:
    """Return the path of the file that a node writes."""
    return run / FOLDER / f"{token}{_NODE}"


def orders_file(run: Path, token: str) -> Path:
    """Return the path of the file with a node's tasks."""
    return run / FOLDER / f"{token}{_ORDERS}"


def read_nodes(run: Path) -> Iterator[NodeFile]:
    """Yield all nodes that have ever asked to join, in the order of their tokens."""
    for path in sorted((run / FOLDER).glob(f"*{_NODE}")):
        with suppress(FolderError):  # removed meanwhile, or of another version: it will say so
            yield NodeFile.read(path)


def read_orders(run: Path, token: str) -> OrdersFile | None:
    """Return the tasks of a node; None if the controller has not written any."""
    path = orders_file(run, token)
    return OrdersFile.read(path) if path.is_file() else None


class SignOfLife:
    """Judges by a counter, with this machine's clock alone, whether a process still lives."""

    def __init__(self, beat: int, now_s: float) -> None:
        """``beat`` is the counter when the process was first seen, alive or not."""
        self._beat, self._changed_s = beat, now_s
        self.seen = False
        """Whether the counter has changed since then, so that the process was alive."""

    def silent_s(self, beat: int, now_s: float) -> float:
        """Return for how long the counter has not changed."""
        if beat != self._beat:
            self._beat, self._changed_s, self.seen = beat, now_s, True
        return now_s - self._changed_s

    def excuse(self, seconds: float) -> None:
        """Do not count a time in which this process could not have seen a change."""
        self._changed_s += seconds
