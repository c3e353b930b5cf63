"""Turns the results of the nodes into findings with a verdict and a remedy.

The verdict is ``fail`` for what breaks a run or makes its result wrong, and ``warn`` for what makes
a run slow or deserves attention.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from vflops.launch.node_check.exchange import Gpu, Health, Result, Space
from vflops.launch.node_check.findings import Finding, NodeResult, Verdict
from vflops.launch.node_check.link_tasks import Backend, LinkTask
from vflops.units import quantity

_MIN_SHARED_BYTES = 1_000_000_000
_MIN_LOCAL_BYTES = 10_000_000_000
_CLOCK_S = 0.1
"""A larger difference between clocks is a warning."""
_WRONG_CLOCK_S = 10.0
_SLOW = 1 / 3
"""A speed below this share of the median is slow."""
_NO_GRES = (
    "ask the administrator to add them to Gres in slurm.conf and gres.conf; to train on CPUs, check"
    " with --gpus 0 and run with --set train.device=cpu"
)

Problem = tuple[Verdict, str]
"""A verdict, and what to do."""


@dataclass(frozen=True)
class Facts:
    """The results of all nodes, by number."""

    folder: str
    names: Mapping[int, str]
    health: Mapping[int, Health]
    """What the nodes that answered say about themselves."""
    results: Mapping[int, NodeResult]
    links: Sequence[tuple[LinkTask, Result]]
    faults: Mapping[int, str]
    """Why nodes did not answer, or did not finish."""
    backend: Backend
    gpus: int = 0
    """The number of GPUs that the scheduler gives to the check of each node."""
    listed: Mapping[str, int] = field(default_factory=dict)
    """The number of GPUs that the scheduler lists for each node, by name; empty if GPUs are not
    wanted, or without a scheduler."""


def judge(facts: Facts) -> Iterator[Finding]:
    """Yield all findings, in the order in which to fix them."""
    checks: tuple[Callable[[Facts], Iterator[Finding]], ...] = (
        _answers,
        _shared_folder,
        _versions,
        _spaces,
        _clocks,
        _gpus,
        _links,
        _reading,
    )
    for check in checks:
        yield from check(facts)


def _finding(node: str, what: str, value: str, problem: Problem | None = None) -> Finding:
    verdict, cure = problem or ("ok", None)
    return Finding(node=node, what=what, value=value, verdict=verdict, cure=cure)


def _answers(facts: Facts) -> Iterator[Finding]:
    output = f"its output is in {facts.folder}"
    for node, name in facts.names.items():
        if node in facts.results:
            yield _finding(name, "answer", "yes")
        elif node in facts.health:
            value = facts.faults.get(node, "it stopped answering during the measurements")
            yield _finding(name, "answer", value, ("fail", output))
        else:
            cure = f"exclude the node, or repair it; {output}"
            yield _finding(name, "answer", facts.faults.get(node, "none"), ("fail", cure))


def _shared_folder(facts: Facts) -> Iterator[Finding]:
    cure = f"check that {facts.folder} is on the same file system everywhere"
    for node, result in facts.results.items():
        unseen = ", ".join(facts.names[other] for other in result.unseen)
        value = f"does not see the files of {unseen}" if unseen else "sees all files"
        problem: Problem | None = ("fail", cure) if unseen else None
        yield _finding(facts.names[node], "shared folder", value, problem)


def _versions(facts: Facts) -> Iterator[Finding]:
    """Yield how the versions of each node differ from the most common ones."""
    versions = {node: health.versions for node, health in facts.health.items()}
    parts = next(iter(versions.values()), {})
    usual = {
        part: Counter(own[part] for own in versions.values()).most_common(1)[0][0] for part in parts
    }
    for node, own in versions.items():
        odd = [part for part in own if own[part] != usual[part]]
        value = ", ".join(
            f"{part} {own[part]}" + (f", not {usual[part]}" if odd else "") for part in odd or own
        )
        problem: Problem | None = None
        if odd or "not installed" in own.values():
            problem = "fail", "use one installation on all nodes: python in site.toml"
        yield _finding(facts.names[node], "versions", value, problem)


def _spaces(facts: Facts) -> Iterator[Finding]:
    for node, health in facts.health.items():
        name = facts.names[node]
        yield _space(name, "shared space", health.shared, _MIN_SHARED_BYTES, "fail", "folder")
        if health.local is not None:
            # Without local space, a run reads from the shared file system.
            least = _MIN_LOCAL_BYTES
            yield _space(name, "local space", health.local, least, "warn", "local_path")


def _space(node: str, what: str, space: Space, least: int, without: Verdict, other: str) -> Finding:
    cure = f"free some space there, or choose another {other}"
    if space.free_bytes is None:
        return _finding(node, what, f"{space.path}: {space.fault}", (without, cure))
    value = f"{quantity(space.free_bytes, 'B')} free in {space.path}"
    return _finding(node, what, value, ("warn", cure) if space.free_bytes < least else None)


def _clocks(facts: Facts) -> Iterator[Finding]:
    for node, result in facts.results.items():
        clock = result.clock
        if clock is None:
            continue
        problem: Problem | None = None
        if clock.offset_s is None or clock.uncertainty_s is None:
            value = clock.fault or "unknown"
            problem = (
                "fail",
                "check for a firewall between the nodes: ranks could not connect either",
            )
        else:
            value = f"{clock.offset_s * 1e3:+.3f} ± {clock.uncertainty_s * 1e3:.3f} ms by TCP"
            off_s = abs(clock.offset_s) - clock.uncertainty_s
            if off_s >= _CLOCK_S:
                verdict: Verdict = "warn" if off_s < _WRONG_CLOCK_S else "fail"
                problem = verdict, "run chronyc tracking (or ntpq -p) on that node"
        yield _finding(facts.names[node], "clock", value, problem)


def _gpus(facts: Facts) -> Iterator[Finding]:
    some = any(health.gpus for health in facts.health.values())
    for node, health in facts.health.items():
        name, seen = facts.names[node], len(health.gpus)
        for number, gpu in enumerate(health.gpus):
            yield _gpu(name, number, gpu)
        # Where SLURM does not confine jobs to their GPUs, a node sees all that it has.
        unlisted = seen not in (facts.gpus, facts.listed.get(name))
        if unlisted and facts.listed and not facts.gpus:
            value = f"sees {seen} GPUs, and the scheduler lists none: a run would train on CPUs"
            yield _finding(name, "gpu", value, ("fail", _NO_GRES))
        elif unlisted and facts.gpus:
            reason = "" if seen else f": {health.no_gpus}"
            value = f"sees {seen} of the {facts.gpus} GPUs that the scheduler gives{reason}"
            cure = "compare nvidia-smi on that node with its Gres (scontrol show node)"
            yield _finding(name, "gpu", value, ("fail", cure))
        elif not seen:
            problem: Problem | None = ("fail", "other nodes have GPUs") if some else None
            yield _finding(name, "gpu", f"none: {health.no_gpus}", problem)


def _gpu(node: str, number: int, gpu: Gpu) -> Finding:
    problems: list[tuple[Verdict, str, str]] = []
    if gpu.uncorrected:
        words = f"{gpu.uncorrected} memory errors that ECC could not correct"
        problems.append(("fail", words, "reset the GPU; if they recur, have it replaced"))
    if gpu.remapping:
        cure = "have the GPU replaced" if gpu.remapping == "failed" else "reset the GPU"
        problems.append(("fail", f"replacement of bad memory rows: {gpu.remapping}", cure))
    if gpu.throttled:
        words = f"its clock is throttled: {', '.join(gpu.throttled)}"
        problems.append(("warn", words, "check cooling and power: nvidia-smi -q -d PERFORMANCE"))
    if gpu.processes:
        words = f"used by others: process {', '.join(map(str, gpu.processes))}"
        problems.append(("warn", words, "request whole nodes: --exclusive in site.toml"))
    unknown = "ECC not known" if gpu.uncorrected is None else f"{gpu.corrected or 0} corrected"
    value = "; ".join(words for _, words, _ in problems) or f"healthy, memory errors: {unknown}"
    cures = "; ".join(cure for _, _, cure in problems)
    problem = (problems[0][0], cures) if problems else None
    return _finding(node, "gpu", f"{number} ({gpu.name}): {value}", problem)


def _links(facts: Facts) -> Iterator[Finding]:
    cure = "its process failed on this node: check that torch starts there"
    for node, found in facts.results.items():
        if found.links_fault is not None:
            yield _finding(facts.names[node], "all-reduce", found.links_fault, ("fail", cure))
    names = "GLOO_SOCKET_IFNAME in site.toml names"
    if facts.backend == "nccl":
        names = "NCCL_SOCKET_IFNAME and GLOO_SOCKET_IFNAME in site.toml name"
    cure = f"check the link between them; {names} the interface"
    pairs = [(task, result) for task, result in facts.links if len(task.nodes) == 2]
    speeds = [speed for pair in pairs if (speed := _bandwidth(*pair))]
    for task, result in sorted(facts.links, key=lambda link: (len(link[0].nodes), link[0].nodes)):
        pair = len(task.nodes) == 2
        ends = " – ".join(facts.names[node] for node in task.nodes) if pair else "all nodes"
        what, speed = "link" if pair else "all-reduce", _bandwidth(task, result)
        if result.fault is not None:
            yield _finding(ends, what, f"no all-reduce: {result.fault}", ("fail", cure))
            continue
        problem, text = _slow(speed if pair else None, speeds, cure)
        yield _finding(ends, what, f"{quantity(speed, 'B/s')} by {facts.backend}{text}", problem)


def _bandwidth(task: LinkTask, result: Result) -> float | None:
    """Return the bus bandwidth in bytes per second; None if it was not measured."""
    if result.fault or not result.sizes:
        return None
    size = result.sizes[-1]
    return task.bus_share * size.size_bytes / statistics.median(size.times_s)


def _reading(facts: Facts) -> Iterator[Finding]:
    speeds = [result.read_bandwidth for result in facts.results.values() if result.read_bandwidth]
    cure = "check its mount of the shared file system"
    for node, result in facts.results.items():
        problem, text = _slow(result.read_bandwidth, speeds, cure)
        value = quantity(result.read_bandwidth, "B/s") + text
        if result.read_fault:
            value, problem = result.read_fault, ("fail", cure)
        yield _finding(facts.names[node], "shared read", value, problem)


def _slow(speed: float | None, speeds: list[float], cure: str) -> tuple[Problem | None, str]:
    """Return whether a speed is far below the others, and the words that say so."""
    if speed is None or speed >= _SLOW * statistics.median(speeds):
        return None, ""
    return ("warn", cure), f", others {quantity(statistics.median(speeds), 'B/s')}"
