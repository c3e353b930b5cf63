"""The folder in which the nodes of a check exchange files while they measure.

present-<k>.json       node k takes part, and what it says about itself
plan.json              what the nodes measure together
<word>-<k>             node k has reached a point at which the nodes meet
result-<r>-<k>.json    what node k measured in round r, written at once
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import ClassVar

from vflops.launch.node_check.link_tasks import Backend, LinkPlan, LinkTask
from vflops.launch.waiting import wait_for
from vflops.python_start import module_command
from vflops.record.files import atomic
from vflops.record.files.document import Data, Document
from vflops.record.formats.measured_node import FOLDER

CLAIM = "kind-"
"""The prefix of the file with which one node of a kind claims the full set of ceilings."""
LOCK = ".lock"
"""The suffix of the file that a job locks while it measures a node."""
_FINISHED = "finished"
_PREFIX = "exchange-"
READY_S = 30.0
"""How long torch may take to start on all nodes; loading it from a slow file system takes long."""
_LEAVE_S = 10.0
"""By how much the program of the links may exceed the time of its rounds."""


class Space(Data):
    """Free space in a folder of a node."""

    path: str
    free_bytes: int | None = None
    fault: str | None = None
    """Why the folder is not writable."""


class Gpu(Data):
    """The health of a GPU; values that it does not report are None."""

    name: str
    uncorrected: int | None = None
    """Memory errors since the driver was loaded that ECC could not correct."""
    corrected: int | None = None
    remapping: str | None = None
    """The problem with the remapping of bad memory rows, if any."""
    throttled: tuple[str, ...] = ()
    """Why its clock is throttled."""
    processes: tuple[int, ...] = ()
    """The pids of processes of other users or jobs."""


class Health(Data):
    """What a preflight's node finds out about itself."""

    clock_address: str | None = None
    """The address of the interface of its clock server; None if it is the address of the node."""
    clock_port: int
    clock_token: str = ""
    """What the clock server expects first."""
    versions: dict[str, str]
    shared: Space
    local: Space | None
    gpus: tuple[Gpu, ...]
    no_gpus: str | None
    """Why there are no GPUs."""


class Present(Document):
    """``present-<k>.json``: a node takes part, and where the others can reach it."""

    schema_name: ClassVar[str] = "vflops.node-present"

    token: str
    """Identifies the check; nodes of another one are ignored."""
    name: str
    address: str
    ports: tuple[int, ...]
    """A free port for each round of measurements that this node may lead."""
    accelerator: str | None
    """The kind of accelerator; None on a node without one."""
    health: Health | None = None


class LinkSize(Data):
    """The samples of one message size, as the ranks return them."""

    size_bytes: int
    times_s: tuple[float, ...]
    error: float
    sent_bytes: int | None = None


class Result(Document):
    """``result-<r>-<k>.json``: the message sizes that a task measured, or its fault on a node."""

    schema_name: ClassVar[str] = "vflops.link-result"

    sizes: tuple[LinkSize, ...] = ()
    fault: str | None = None
    late: bool = False
    """Whether the time ran out, so that the error of another node says more."""


class Exchange:
    """One node's view of the folder."""

    def __init__(self, path: Path, node: int, nodes: Collection[int]) -> None:
        """``nodes`` are those that take part, ``node`` among them."""
        self.path, self.node, self.nodes = path, node, nodes
        atomic.make_folder(path)

    def introduce(self, present: Present) -> None:
        """Tell the other nodes that this one takes part."""
        present.write(self.present_file(self.node), private=True)

    def absent(self, limit_s: float) -> list[int]:
        """Wait for the introductions of all nodes; return the nodes that do not appear."""
        files = {self.present_file(node): node for node in self.nodes}
        return [files[path] for path in wait_for(files, limit_s)]

    def present_file(self, node: int) -> Path:
        """Return the file in which a node introduces itself."""
        return self.path / f"present-{node}.json"

    def present(self, node: int) -> Present:
        """Return what a node said about itself."""
        return Present.read(self.present_file(node))

    def reach(self, word: str) -> None:
        """Say that this node has reached ``word``."""
        (self.path / f"{word}-{self.node}").touch()

    def meet(self, word: str, limit_s: float) -> bool:
        """Say that this node has reached ``word``, and wait for all; False if one does not."""
        self.reach(word)
        return not wait_for([self.path / f"{word}-{node}" for node in self.nodes], limit_s)

    def result_file(self, number: int, node: int) -> Path:
        """Return the file of a node's result; ``number`` is that of its round."""
        return self.path / f"result-{number}-{node}.json"

    def result(self, number: int, task: LinkTask) -> Result | None:
        """Return what the nodes of a task measured, or the fault of one; None if nothing is known.

        An error comes before the others' vain wait.
        """
        files = [self.result_file(number, node) for node in task.nodes]
        results = [Result.read(file) for file in files if file.is_file()]
        faults = sorted((result for result in results if result.fault), key=lambda one: one.late)
        return next(iter([*faults, *results]), None)

    def finish(self) -> None:
        """Say that nothing is measured any more.

        The folder stays until the jobs have ended: other nodes may still look for files in it.
        """
        (self.path / _FINISHED).touch()

    def measure_links(self, plan: LinkPlan) -> str | None:
        """Measure the links in a process of its own; return how it failed, if it did.

        Torch may hang or die if a network is broken.
        """
        command = module_command("vflops.launch.node_check.link_ranks", self.path, self.node)
        threads = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
        limit_s = links_s(plan)
        try:
            done = subprocess.run(
                command,
                stderr=subprocess.PIPE,
                text=True,
                timeout=limit_s,
                check=False,
                env={**os.environ, **threads},
            )
        except subprocess.TimeoutExpired:
            return f"it did not end within {limit_s:g} s"
        sys.stderr.write(done.stderr)
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        return lines[-1] if done.returncode else None


def plan_file(folder: Path) -> Path:
    """Return the file that says what the nodes measure together."""
    return folder / "plan.json"


def links_s(plan: LinkPlan) -> float:
    """Return the time limit for all rounds on a node."""
    return READY_S + len(plan.rounds) * plan.round_s + _LEAVE_S


def link_backend(nodes: Sequence[Present]) -> Backend:
    """Return ``nccl`` if all nodes have NVIDIA or AMD accelerators, else ``gloo``."""
    return "nccl" if {node.accelerator for node in nodes} == {"cuda"} else "gloo"


def ceilings_exchange(run: Path, token: str) -> Path:
    """Return the folder in which the nodes of an allocation measure their ceilings."""
    return run / FOLDER / f"{_PREFIX}{token}"


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
