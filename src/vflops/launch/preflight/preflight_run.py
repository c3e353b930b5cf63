"""A preflight from its start to its findings: probes started, waited for, judged, ended."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, TypeVar

from vflops.errors import UsageError
from vflops.launch.preflight import start_probes
from vflops.launch.preflight.node_probe import FAULT, measure_s
from vflops.launch.preflight.preflight_findings import Finding, Found, Hello, Order, Preflight, Roll
from vflops.launch.preflight.verdicts import Facts, judged
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
    on: Literal["local", "slurm"],
    site: SiteSettings,
    *,
    nodes: int | None = None,
    gpus: int = 0,
    limit_s: float = LIMIT_S,
    say: Say = lambda text: None,
) -> tuple[Preflight, Path]:
    """What the nodes are fit for, and the folder that says it in full.

    ``limit_s`` is how long a node may take to answer once it has started; the queue may take
    as long as it wants.
    """
    if nodes is not None and (nodes < 1 or (on == "local" and nodes > 1)):
        raise UsageError(
            f"--nodes {nodes} --on {on}",
            hint="at least 1" if nodes < 1 else "this machine is one node: leave --nodes out",
        )
    missing: list[start_probes.Unusable] = []
    count = 1
    if on == "slurm":
        count, missing = start_probes.choose(nodes, site.partition)
    folder = _new_folder(out)
    order = Order(token=os.urandom(8).hex(), nodes=count, read_bytes=READ_BYTES, limit_s=limit_s)
    order.write(folder / "order.json")
    if on == "slurm":
        probes = start_probes.on_slurm(folder, site, count, gpus)
    else:
        probes = start_probes.here(folder, site, socket.gethostname())
    facts = Gathering(folder, order, probes, say).facts()
    lost = [
        Finding(
            node=node.name,
            what="scheduler",
            value=f"gives it to no job: {node.why}",
            verdict="fail",
            cure=f"scontrol update nodename={node.name} state=resume, once it is mended",
        )
        for node in missing
    ]
    found = Preflight(
        utc=datetime.now(UTC).isoformat(timespec="seconds"),
        on=on,
        nodes=tuple(facts.names.values()),
        findings=(*lost, *judged(facts)),
    )
    found.write(folder / "preflight.json")
    return found, folder


class Gathering:
    """The gatherer's side of the meeting in the folder."""

    def __init__(self, folder: Path, order: Order, probes: start_probes.Probes, say: Say) -> None:
        self._folder, self._order, self._probes, self._say = folder, order, probes, say

    def facts(self) -> Facts:
        """All that the probes found; none of them runs afterwards."""
        numbers = range(self._order.nodes)
        try:
            self._wait("hello", numbers, self._order.limit_s)
            hellos = self._left(Hello, "hello", numbers)
            cards = bool(hellos) and all(hello.gpus for hello in hellos.values())
            roll = Roll(nodes=tuple(hellos), backend="nccl" if cards else "gloo")
            roll.write(self._folder / "roll.json")
            self._say(f"{len(hellos)} of {len(numbers)} nodes answered; they measure")
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
        founds = self._left(Found, "found", hellos)
        return Facts(
            folder=str(self._folder),
            names=names,
            hellos=hellos,
            founds=founds,
            faults={
                node: self._fault(node, name) for node, name in names.items() if node not in founds
            },
            backend=roll.backend,
        )

    def _wait(self, word: str, nodes: Collection[int], limit_s: float) -> None:
        """Until all these nodes left the file, cannot any more, or may not any longer."""
        end_s: float | None = None
        said = ""
        while self._silent(word, nodes):
            seen = self._probes.look()
            if seen.state == "ended":
                return
            if seen.state == "running" and end_s is None:
                end_s = time.monotonic() + limit_s
            if end_s is not None and time.monotonic() > end_s:
                return
            if seen.reason and seen.reason != said:
                said = seen.reason
                self._say(f"the scheduler says {said}")
            time.sleep(_POLL_S)

    def _left(self, kind: type[_T], word: str, nodes: Collection[int]) -> dict[int, _T]:
        paths = {node: self._folder / f"{word}-{node}.json" for node in nodes}
        return {node: kind.read(path) for node, path in paths.items() if path.is_file()}

    def _silent(self, word: str, nodes: Collection[int]) -> set[int]:
        """Those that said neither that nor why they cannot."""
        left = {node for node in nodes if not (self._folder / f"{word}-{node}.json").is_file()}
        return left - self._told().keys() if left else left

    def _told(self) -> dict[int, str]:
        """What probes that cannot meet the others said on their output."""
        faults = {}
        for line in self._log():
            with suppress(ValueError):  # two lines in one, where several write
                if line.startswith(FAULT):
                    told = json.loads(line.removeprefix(FAULT))
                    faults[told["node"]] = f"{told['name']} says: {told['fault']}"
        return faults

    def _fault(self, node: int, name: str) -> str:
        """A node's own words, else the scheduler's of it, else that there are none."""
        about = [line for line in self._log() if f" {name}: " in line or f"node {name}" in line]
        silent = f"nothing within {self._order.limit_s:g} s"
        return self._told().get(node) or (f"{silent} ({about[0].strip()})" if about else silent)

    def _log(self) -> list[str]:
        with suppress(OSError):
            log = self._folder / start_probes.LOG
            return log.read_text(encoding="utf-8", errors="replace").splitlines()
        return []


def _name(known: tuple[str, ...], node: int) -> str:
    return known[node] if node < len(known) else f"node {node + 1}"


def _new_folder(out: Path) -> Path:
    """Not a run's: no command takes it for one."""
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    folder = out.resolve() / f"preflight-{stamp}-{os.urandom(2).hex()}"
    atomic.make_folder(folder)
    return folder
