"""Runs a preflight: starts the probes, waits for their results, judges them and ends the probes."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

from vflops.config.launch import LaunchSettings
from vflops.errors import UsageError
from vflops.launch.factory import launcher_class
from vflops.launch.job_script import PROBE_LOG
from vflops.launch.launcher import Probes
from vflops.launch.nodes import known_nodes
from vflops.launch.preflight.node_probe import FAULT, measure_s
from vflops.launch.preflight.preflight_findings import (
    Finding,
    Hello,
    NodeResult,
    Order,
    Preflight,
    Roll,
)
from vflops.launch.preflight.verdicts import Facts, judge
from vflops.launch.site import SiteSettings
from vflops.record.files import atomic
from vflops.record.files.document import Document

READ_BYTES = 1 << 25
LIMIT_S = 60.0
_POLL_S = 0.1

Say = Callable[[str], None]
_T = TypeVar("_T", bound=Document)


def preflight(
    out: Path,
    on: str,
    site: SiteSettings,
    *,
    nodes: int | None = None,
    gpus: int | None = None,
    limit_s: float = LIMIT_S,
    say: Say = lambda text: None,
) -> tuple[Preflight, Path]:
    """Check the nodes; return the findings and the folder with all details.

    ``limit_s`` is how long a node may take to answer after the probes have started; the time in the
    queue is not limited. Each node must see ``gpus`` GPUs, by default as many as SLURM lists.
    """
    if nodes is not None and nodes < 1:
        raise UsageError(f"--nodes {nodes} --on {on}", hint="use at least 1")
    place = launcher_class(on)
    number, unusable = place.plan_probes(nodes, site)
    if gpus is None:
        gpus = 0 if place.is_this_machine else _listed_gpus(on)
    folder = _new_folder(out)
    order = Order(
        token=os.urandom(8).hex(),
        nodes=number,
        read_bytes=READ_BYTES,
        limit_s=limit_s,
        local=place.is_this_machine,
    )
    order.write(folder / "order.json")
    probes = place.start_probes(folder, site, number, gpus)
    facts = Gatherer(folder, order, probes, say, gpus).facts()
    lost = [
        Finding(
            node=node.name,
            what="scheduler",
            value=f"does not give it to jobs: {node.reason}",
            verdict="fail",
            cure=f"scontrol update nodename={node.name} state=resume, once it is repaired",
        )
        for node in unusable
    ]
    result = Preflight(
        utc=datetime.now(UTC).isoformat(timespec="seconds"),
        on=on,
        nodes=tuple(facts.names.values()),
        findings=(*lost, *judge(facts)),
    )
    result.write(folder / "preflight.json")
    return result, folder


def _listed_gpus(on: str) -> int:
    """Return the GPUs per node that the scheduler lists; 0 if its nodes have none."""
    nodes = known_nodes(LaunchSettings(on=on), "auto")
    return min(node.resources.gpus if node.resources is not None else 0 for node in nodes)


class Gatherer:
    """Collects the files that the probes write."""

    def __init__(self, folder: Path, order: Order, probes: Probes, say: Say, gpus: int = 0) -> None:
        """``gpus`` is the number of GPUs that the scheduler gives to each probe."""
        self._folder, self._order, self._probes, self._say = folder, order, probes, say
        self._gpus = gpus

    def facts(self) -> Facts:
        """Return the results of all probes, after ending them."""
        numbers = range(self._order.nodes)
        try:
            self._wait("hello", numbers, self._order.limit_s)
            hellos = self._read(Hello, "hello", numbers)
            cards = bool(hellos) and all(hello.gpus for hello in hellos.values())
            roll = Roll(nodes=tuple(hellos), backend="nccl" if cards else "gloo")
            roll.write(self._folder / "roll.json")
            self._say(f"{len(hellos)} of {len(numbers)} nodes answered and are measuring")
            self._wait("found", hellos, measure_s(roll.backend))
        finally:
            known = self._probes.look().nodes
            self._probes.stop()
            for kind in ("read-*.bin", "ready-*", "paired-*"):
                for path in self._folder.glob(kind):
                    path.unlink(missing_ok=True)
        names = {
            node: hellos[node].name if node in hellos else _name(known, node) for node in numbers
        }
        results = self._read(NodeResult, "found", hellos)
        return Facts(
            folder=str(self._folder),
            names=names,
            hellos=hellos,
            results=results,
            faults={
                node: self._fault(node, name) for node, name in names.items() if node not in results
            },
            backend=roll.backend,
            gpus=self._gpus,
        )

    def _wait(self, word: str, nodes: Collection[int], limit_s: float) -> None:
        """Wait until all these nodes have written the file or a fault, or until the time limit."""
        end_s: float | None = None
        shown = ""
        while self._silent(word, nodes):
            status = self._probes.look()
            if status.state == "ended":
                return
            if status.state == "running" and end_s is None:
                end_s = time.monotonic() + limit_s
            if end_s is not None and time.monotonic() > end_s:
                return
            if status.reason and status.reason != shown:
                shown = status.reason
                self._say(f"the scheduler says {shown}")
            time.sleep(_POLL_S)

    def _read(self, kind: type[_T], word: str, nodes: Collection[int]) -> dict[int, _T]:
        paths = {node: self._folder / f"{word}-{node}.json" for node in nodes}
        return {node: kind.read(path) for node, path in paths.items() if path.is_file()}

    def _silent(self, word: str, nodes: Collection[int]) -> set[int]:
        """Return the nodes that have written neither the file nor a fault."""
        left = {node for node in nodes if not (self._folder / f"{word}-{node}.json").is_file()}
        return left - self._faults().keys() if left else left

    def _faults(self) -> dict[int, str]:
        """Return the faults that probes printed."""
        faults = {}
        for line in self._log():
            with suppress(ValueError):  # the output of several probes may be interleaved
                if line.startswith(FAULT):
                    fault = json.loads(line.removeprefix(FAULT))
                    faults[fault["node"]] = f"{fault['name']} says: {fault['fault']}"
        return faults

    def _fault(self, node: int, name: str) -> str:
        """Return the fault of a node: its own, or a timeout with the scheduler's message if any."""
        about = [line for line in self._log() if f" {name}: " in line or f"node {name}" in line]
        silent = f"no answer within {self._order.limit_s:g} s"
        return self._faults().get(node) or (f"{silent} ({about[0].strip()})" if about else silent)

    def _log(self) -> list[str]:
        with suppress(OSError):
            log = self._folder / PROBE_LOG
            return log.read_text(encoding="utf-8", errors="replace").splitlines()
        return []


def _name(known: tuple[str, ...], node: int) -> str:
    return known[node] if node < len(known) else f"node {node + 1}"


def _new_folder(out: Path) -> Path:
    """Create a folder for a preflight, with a name that is not that of a run."""
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    folder = out.resolve() / f"preflight-{stamp}-{os.urandom(2).hex()}"
    atomic.make_folder(folder)
    return folder
