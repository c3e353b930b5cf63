"""Runs a preflight: starts the check of each node, waits for the results and judges them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager, suppress
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import TypeVar

from vflops.config.launch import LaunchSettings
from vflops.errors import UsageError
from vflops.launch.agent_report import AgentReport, last_report
from vflops.launch.factory import launcher_class
from vflops.launch.job_script import PREFLIGHT, step_log
from vflops.launch.launcher import Look
from vflops.launch.node_check.exchange import Exchange, Present, link_backend, plan_file
from vflops.launch.node_check.findings import Finding, NodeResult, Order, Preflight
from vflops.launch.node_check.node_probe import check_plan, measure_s
from vflops.launch.node_check.verdicts import Facts, judge
from vflops.launch.nodes import known_nodes
from vflops.launch.site import SiteSettings
from vflops.launch.sizing import Asked, RankShare, node_share, shape
from vflops.launch.slurm.commands import step_error
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

    ``limit_s`` is how long a node may take to answer after the checks have started; the time in the
    queue is not limited. ``gpus`` of each node are checked, by default all that a run would get;
    the node must see as many as the scheduler gives.
    """
    if nodes is not None and nodes < 1:
        raise UsageError(f"--nodes {nodes} --on {on}", hint="use at least 1")
    place = launcher_class(on)
    number, unusable = place.nodes_to_check(nodes, site)
    each, listed = _size(on, site, number, gpus)
    folder = _new_folder(out)
    order = Order(
        token=os.urandom(8).hex(),
        nodes=number,
        read_bytes=READ_BYTES,
        limit_s=limit_s,
        local=place.is_this_machine,
    )
    order.write(folder / "order.json")
    gatherer = Gatherer(folder, order, say, each.gpus, listed)
    facts = gatherer.facts(place.checking(folder, site, number, each))
    lost = [
        Finding(
            node=node,
            what="scheduler",
            value=f"does not give it to jobs: {reason}",
            verdict="fail",
            cure=f"scontrol update nodename={node} state=resume, once it is repaired",
        )
        for node, reason in unusable.items()
    ]
    result = Preflight(
        utc=datetime.now(UTC).isoformat(timespec="seconds"),
        on=on,
        nodes=tuple(facts.names.values()),
        findings=(*lost, *judge(facts)),
    )
    result.write(folder / "preflight.json")
    return result, folder


def _size(
    on: str, site: SiteSettings, number: int, gpus: int | None
) -> tuple[RankShare, dict[str, int]]:
    """Return what a run with so many nodes gets of each, and the GPUs listed for each node.

    ``gpus`` is how many of them the user wants to check: None for all, and 0 if a run will not use
    them, in which case none are listed.
    """
    if launcher_class(on).is_this_machine:
        return RankShare(), {}
    per_rank = None if gpus is None else min(gpus, 1)
    launch = LaunchSettings(on=on, gpus_per_rank=per_rank, ranks_per_node=gpus or None)
    nodes = known_nodes(launch, "auto")
    asked = Asked(nodes=min(number, len(nodes)))
    sized = shape(nodes, asked, cluster=True).nodes
    whole = site.exclusive or launcher_class(on).nodes_reserved()
    owned = {node.name: node.resources.gpus for node in nodes if node.resources is not None}
    return node_share(sized, launch, whole=whole), {} if gpus == 0 else owned


class Gatherer:
    """Collects the files that the nodes write."""

    def __init__(
        self,
        folder: Path,
        order: Order,
        say: Say,
        gpus: int = 0,
        listed: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        """``gpus`` is the number of GPUs that the scheduler gives to the check of each node.

        ``listed`` has how many GPUs the scheduler lists for each node.
        """
        self._folder, self._order, self._say = folder, order, say
        self._gpus, self._listed = gpus, listed

    def facts(self, checking: AbstractContextManager[Look]) -> Facts:
        """Return the results of all nodes, after ending what still runs on them."""
        numbers = range(self._order.nodes)
        try:
            with checking as look:
                self._wait(look, "present", numbers, self._order.limit_s)
                answers = self._read(Present, "present", numbers)
                plan = check_plan(tuple(answers), link_backend([*answers.values()]))
                plan.write(plan_file(self._folder))
                self._say(f"{len(answers)} of {len(numbers)} nodes answered and are measuring")
                self._wait(look, "found", answers, measure_s(plan))
                known = look().nodes
        finally:
            for kind in ("read-*.bin", "ready-*", "round-*"):
                for path in self._folder.glob(kind):
                    path.unlink(missing_ok=True)
        names = {
            node: answers[node].name if node in answers else _name(known, node) for node in numbers
        }
        results, exchange = self._read(NodeResult, "found", answers), Exchange(self._folder, -1, ())
        measured = [
            (task, exchange.result(number, task))
            for number, tasks in enumerate(plan.rounds)
            for task in tasks
        ]
        return Facts(
            folder=str(self._folder),
            names=names,
            health={node: one.health for node, one in answers.items() if one.health is not None},
            results=results,
            links=[(task, result) for task, result in measured if result is not None],
            faults={node: self._fault(node) for node in names if node not in results},
            backend=plan.backend,
            gpus=self._gpus,
            listed=self._listed,
        )

    def _wait(self, look: Look, word: str, nodes: Collection[int], limit_s: float) -> None:
        """Wait until all these nodes have written the file or a fault, or until the time limit."""
        end_s: float | None = None
        shown = ""
        while self._silent(word, nodes):
            status = look()
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
        return {node for node in left if self._report(node) is None}

    def _report(self, node: int) -> AgentReport | None:
        """Return the fault that a node printed, if any."""
        return last_report(self._output(node), node)

    def _fault(self, node: int) -> str:
        """Return the fault of a node: its own, or a timeout with the scheduler's message if any."""
        report, error = self._report(node), step_error(self._output(node))
        if report is not None:
            return f"{report.node} says: {report.message}"
        silent = f"no answer within {self._order.limit_s:g} s"
        return f"{silent} ({error})" if error else silent

    def _output(self, node: int) -> bytes:
        with suppress(OSError):
            return step_log(self._folder / PREFLIGHT, node).read_bytes()
        return b""


def _name(known: tuple[str, ...], node: int) -> str:
    return known[node] if node < len(known) else f"node {node + 1}"


def _new_folder(out: Path) -> Path:
    """Create a folder for a preflight, with a name that is not that of a run."""
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    folder = out.resolve() / f"preflight-{stamp}-{os.urandom(2).hex()}"
    atomic.make_folder(folder)
    return folder
