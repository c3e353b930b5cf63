"""Probes started on nodes: on this machine, in an allocation that is held, or in one asked for."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from vflops.errors import UsageError
from vflops.launch.job_script import LOCAL_PATH, Request, Step, allocation_script
from vflops.launch.scheduler import Scheduler, Seen, held_allocation, slurm_nodes
from vflops.launch.site import SiteSettings
from vflops.launch.slurm.slurm_allocation import slurm
from vflops.record.files import atomic

LOG = "preflight.log"
_PROBE = ("-P", "-m", "vflops.launch.preflight.node_probe")
_TIME_LIMIT = "0:15"
"""Of the allocation: a short one is found soon."""


class Probes(Protocol):
    """Probes that were started, one a node."""

    def look(self) -> Seen:
        """Whether they wait, run or have ended, and where."""
        ...

    def stop(self) -> None:
        """End what still runs of them."""
        ...


class Processes:
    """Processes of this machine that were started here, and the nodes that they stand for."""

    def __init__(
        self,
        commands: Sequence[Sequence[str]],
        nodes: Sequence[str],
        folder: Path,
        environment: Mapping[str, str],
    ) -> None:
        self._nodes = tuple(nodes)
        with (folder / LOG).open("ab") as log:
            self._running = [
                subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                    env={**os.environ, **environment},
                )
                for command in commands
            ]

    def look(self) -> Seen:
        """They run from the start."""
        alive = any(process.poll() is None for process in self._running)
        return Seen("running" if alive else "ended", self._nodes, None)

    def stop(self) -> None:
        """Ask each with all that it started, and kill what is left: srun ends its step itself."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            for process in self._running:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, number)
            with suppress(subprocess.TimeoutExpired):
                for process in self._running:
                    process.wait(timeout=5)


class Submitted:
    """A script in the hands of SLURM."""

    def __init__(self, scheduler: Scheduler, request: Request) -> None:
        self._scheduler = scheduler
        self._id = scheduler.submit(request)
        self._seen = Seen("waiting", (), None)
        self._looked_s = float("-inf")

    def look(self) -> Seen:
        """As SLURM said when it was last asked, which is not at every call."""
        if time.monotonic() - self._looked_s > self._scheduler.interval_s:
            seen = self._scheduler.look([self._id])[self._id]
            # A node that dies leaves the list, and others would take its number.
            nodes = max(seen.nodes, self._seen.nodes, key=len)
            self._seen = Seen(seen.state, nodes, seen.reason)
            self._looked_s = time.monotonic()
        return self._seen

    def stop(self) -> None:
        """Cancel it."""
        self._scheduler.cancel([self._id])


@dataclass(frozen=True)
class Unusable:
    """A node that SLURM would not give to a job."""

    name: str
    why: str


def here(folder: Path, site: SiteSettings, name: str, probes: int = 1) -> Probes:
    """Probes on this machine; more than one only shows how they meet."""
    command = [sys.executable, *_PROBE, str(folder)]
    local = {LOCAL_PATH: os.path.expandvars(site.local_path)} if site.local_path else {}
    commands = [[*command, str(number)] for number in range(probes)]
    return Processes(commands, [name] * probes, folder, local)


def on_slurm(folder: Path, site: SiteSettings, nodes: int, gpus: int) -> Probes:
    """A probe on each of so many nodes, by a script that stays in the folder."""
    request = Request(
        name="vflops-preflight",
        script=folder / "preflight.sh",
        nodes=nodes,
        tasks_per_node=1,
        cores_per_task=1,
        gpus_per_task=gpus,
        output=folder / LOG,
        site=site.model_copy(update={"time_limit": _TIME_LIMIT}),
    )
    # A step for each node: one that cannot be reached takes no other with it.
    steps = [Step(k, k, 1, 1) for k in range(nodes)]
    atomic.write_text(request.script, allocation_script(request, folder, steps, _PROBE))
    return Submitted(slurm(folder), request)


def choose(wanted: int | None, partition: str | None) -> tuple[int, list[Unusable]]:
    """How many nodes of SLURM to ask for, and those that are missing for as many as wanted."""
    Scheduler("slurm")  # says what to do where there is none
    held = held_allocation()
    if held is not None:
        if wanted is not None and wanted > len(held.nodes):
            raise UsageError(
                f"--nodes {wanted}, and the allocation that is held has {len(held.nodes)}",
                hint="leave --nodes out, or start outside of the allocation",
            )
        return wanted or len(held.nodes), []
    if wanted is None:
        raise UsageError(
            "how many nodes shall be looked at?",
            hint="say --nodes N, as many as the run will take, or start in an allocation",
        )
    listed = slurm_nodes(partition)
    ours = [node for node in listed if partition or node.in_default] or listed
    nodes = {node.name: node for node in ours}.values()
    good = [node for node in nodes if node.usable]
    if len(good) >= wanted:
        return wanted, []
    bad = [
        Unusable(each.name, f"{each.state}: {each.reason}" if each.reason != "none" else each.state)
        for each in nodes
        if not each.usable
    ]
    if not good or len(nodes) < wanted:
        raise UsageError(
            f"SLURM has {len(good)} nodes that a job could get, and {wanted} are wanted",
            hint="look at sinfo, or set another partition in site.toml",
        )
    return len(good), bad
