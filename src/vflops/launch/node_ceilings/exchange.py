"""The folder in which the nodes of a step exchange files while they measure."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import ClassVar

from vflops.launch.waiting import free_port, wait_for
from vflops.record.files import atomic
from vflops.record.files.document import Data, Document
from vflops.record.formats.measured_node import FOLDER

CLAIM = "kind-"
"""The prefix of the file with which one node of a kind claims the full set of ceilings."""
LOCK = ".lock"
"""The suffix of the file that a job locks while it measures a node."""
_FINISHED = "finished"
_PREFIX = "exchange-"


class Present(Document):
    """``present-<node>.json``: a node takes part, and where the others can reach it."""

    schema_name: ClassVar[str] = "vflops.node-present"

    name: str
    address: str
    ports: tuple[int, ...]
    """A free port for each round of measurements that this node may lead."""
    accelerator: str | None
    """The kind of accelerator; None on a node without one."""


class LinkSize(Data):
    """The samples of one message size, as the ranks return them."""

    size_bytes: int
    times_s: tuple[float, ...]
    error: float
    sent_bytes: int | None = None


class Result(Document):
    """``result-<round>-<first node>.json``: the message sizes that a task measured."""

    schema_name: ClassVar[str] = "vflops.link-result"

    sizes: tuple[LinkSize, ...] = ()
    fault: str | None = None


class Exchange:
    """One node's view of the folder."""

    def __init__(self, run: Path, token: str, node: int, nodes: int) -> None:
        self.path = run / FOLDER / f"{_PREFIX}{token}"
        self.node, self.nodes = node, nodes
        atomic.make_folder(self.path)

    def introduce(self, name: str, address: str, accelerator: str | None, rounds: int) -> None:
        """Tell the other nodes that this one takes part."""
        ports = tuple(free_port() for _ in range(rounds))
        Present(name=name, address=address, ports=ports, accelerator=accelerator).write(
            self._present(self.node)
        )

    def others_present(self, limit_s: float) -> bool:
        """Wait for all nodes; return False if one does not appear."""
        return not wait_for([self._present(node) for node in range(self.nodes)], limit_s)

    def present(self, node: int) -> Present:
        """Return what a node said about itself."""
        return Present.read(self._present(node))

    def reach(self, word: str) -> None:
        """Say that this node has reached ``word``."""
        (self.path / f"{word}-{self.node}").touch()

    def meet(self, word: str, limit_s: float) -> bool:
        """Say that this node has reached ``word``, and wait for all; False if one does not."""
        self.reach(word)
        return not wait_for([self.path / f"{word}-{node}" for node in range(self.nodes)], limit_s)

    def result_file(self, number: int, first_node: int) -> Path:
        """Return the file of a task's result; ``number`` is that of its round."""
        return self.path / f"result-{number}-{first_node}.json"

    def finish(self) -> None:
        """Say that nothing is measured any more.

        The folder stays until the jobs have ended: other nodes may still look for files in it.
        """
        (self.path / _FINISHED).touch()

    def _present(self, node: int) -> Path:
        return self.path / f"present-{node}.json"


def remove_temporary_files(run: Path) -> None:
    """Remove the claims, and what nodes that died left behind."""
    for path in (run / FOLDER).glob(f"{_PREFIX}*"):
        shutil.rmtree(path, ignore_errors=True)
    for pattern in (f"{CLAIM}*", f"*{LOCK}"):
        for path in (run / FOLDER).glob(pattern):
            path.unlink(missing_ok=True)


def measuring(run: Path) -> bool:
    """Whether nodes are measuring at the moment, or died while they did."""
    folders = (run / FOLDER).glob(f"{_PREFIX}*")
    return any(not (path / _FINISHED).exists() for path in folders)
