"""Turns the results of the probes into findings with a verdict and a remedy.

The verdict is ``fail`` for what breaks a run or makes its result wrong, and ``warn`` for what makes
a run slow or deserves attention.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from vflops.launch.preflight.preflight_findings import (
    Finding,
    Gpu,
    Hello,
    Link,
    NodeResult,
    Space,
    Verdict,
)
from vflops.units import quantity

_MIN_SHARED_BYTES = 1_000_000_000
_MIN_LOCAL_BYTES = 10_000_000_000
_CLOCK_S = 0.1
"""A larger difference between clocks is a warning."""
_WRONG_CLOCK_S = 10.0
_SLOW = 1 / 3
"""A speed below this share of the median is slow."""


@dataclass(frozen=True)
class Facts:
    """The results of all probes, by number of the node."""

    folder: str
    names: Mapping[int, str]
    hellos: Mapping[int, Hello]
    results: Mapping[int, NodeResult]
    faults: Mapping[int, str]
    """Why nodes did not answer, or did not finish."""
    backend: str
    gpus: int = 0
    """The number of GPUs that the scheduler gives to each node's probe."""


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


def _answers(facts: Facts) -> Iterator[Finding]:
    for node, name in facts.names.items():
        if node not in facts.hellos:
            yield Finding(
                node=name,
                what="answer",
                value=facts.faults.get(node, "none"),
                verdict="fail",
                cure=f"exclude the node, or repair it; its output is in {facts.folder}",
            )
        elif node not in facts.results:
            yield Finding(
                node=name,
                what="answer",
                value=facts.faults.get(node, "it stopped answering during the measurements"),
                verdict="fail",
                cure=f"its output is in {facts.folder}",
            )
        else:
            yield Finding(node=name, what="answer", value="yes", verdict="ok")


def _shared_folder(facts: Facts) -> Iterator[Finding]:
    for node, result in facts.results.items():
        unseen = ", ".join(facts.names[other] for other in result.unseen)
        yield Finding(
            node=facts.names[node],
            what="shared folder",
            value=f"does not see the files of {unseen}" if unseen else "sees all files",
            verdict="fail" if unseen else "ok",
            cure=f"check that {facts.folder} is on the same file system everywhere"
            if unseen
            else None,
        )


def _versions(facts: Facts) -> Iterator[Finding]:
    """Yield how the versions of each node differ from the most common ones."""
    hellos = facts.hellos
    parts = [part for hello in list(hellos.values())[:1] for part in hello.versions]
    usual = {
        part: Counter(hello.versions[part] for hello in hellos.values()).most_common(1)[0][0]
        for part in parts
    }
    for node, hello in hellos.items():
        odd = [part for part, version in hello.versions.items() if version != usual[part]]
        missing = [part for part, version in hello.versions.items() if version == "not installed"]
        if odd:
            value = ", ".join(f"{part} {hello.versions[part]}, not {usual[part]}" for part in odd)
        else:
            value = ", ".join(f"{part} {version}" for part, version in hello.versions.items())
        yield Finding(
            node=facts.names[node],
            what="versions",
            value=value,
            verdict="fail" if odd or missing else "ok",
            cure="use one installation on all nodes: python in site.toml"
            if odd or missing
            else None,
        )


def _spaces(facts: Facts) -> Iterator[Finding]:
    for node, hello in facts.hellos.items():
        name = facts.names[node]
        yield _space(name, "shared space", hello.shared, _MIN_SHARED_BYTES, "fail")
        if hello.local is not None:
            # Without local space, a run reads from the shared file system.
            yield _space(name, "local space", hello.local, _MIN_LOCAL_BYTES, "warn")


def _space(node: str, what: str, space: Space, least: int, without: Verdict) -> Finding:
    if space.free_bytes is None:
        value, verdict = f"{space.path}: {space.fault}", without
    else:
        value = f"{quantity(space.free_bytes, 'B')} free in {space.path}"
        verdict = "ok" if space.free_bytes >= least else "warn"
    other = "folder" if without == "fail" else "local_path"
    cure = f"free some space there, or choose another {other}"
    return Finding(
        node=node, what=what, value=value, verdict=verdict, cure=None if verdict == "ok" else cure
    )


def _clocks(facts: Facts) -> Iterator[Finding]:
    for node, result in facts.results.items():
        clock = result.clock
        if clock is None:
            continue
        verdict: Verdict = "fail"
        cure: str | None = "check for a firewall between the nodes: ranks could not connect either"
        if clock.offset_s is None or clock.uncertainty_s is None:
            value = clock.fault or "unknown"
        else:
            value = f"{clock.offset_s * 1e3:+.3f} ± {clock.uncertainty_s * 1e3:.3f} ms by TCP"
            off_s = abs(clock.offset_s) - clock.uncertainty_s
            verdict = "ok" if off_s < _CLOCK_S else "warn" if off_s < _WRONG_CLOCK_S else "fail"
            cure = None if verdict == "ok" else "run chronyc tracking (or ntpq -p) on that node"
        yield Finding(node=facts.names[node], what="clock", value=value, verdict=verdict, cure=cure)


def _gpus(facts: Facts) -> Iterator[Finding]:
    for node, hello in facts.hellos.items():
        name = facts.names[node]
        for number, gpu in enumerate(hello.gpus):
            yield _gpu(name, number, gpu)
        seen = len(hello.gpus)
        if facts.gpus and seen != facts.gpus:
            reason = "" if seen else f": {hello.no_gpus}"
            yield Finding(
                node=name,
                what="gpu",
                value=f"sees {seen} of the {facts.gpus} GPUs that the scheduler gives{reason}",
                verdict="fail",
                cure="compare nvidia-smi on that node with its Gres (scontrol show node)",
            )
        elif not hello.gpus:
            value = f"none: {hello.no_gpus}"
            some = any(other.gpus for other in facts.hellos.values())
            yield Finding(
                node=name,
                what="gpu",
                value=value,
                verdict="fail" if some else "ok",
                cure="other nodes have GPUs" if some else None,
            )


def _gpu(node: str, number: int, gpu: Gpu) -> Finding:
    problems: list[tuple[Verdict, str, str]] = []
    if gpu.uncorrected:
        words = f"{gpu.uncorrected} memory errors that ECC could not correct"
        problems.append(("fail", words, "reset the GPU; if they recur, have it replaced"))
    if gpu.remapping:
        failed = gpu.remapping == "failed"
        cure = "have the GPU replaced" if failed else "reset the GPU"
        problems.append(("fail", f"replacement of bad memory rows: {gpu.remapping}", cure))
    if gpu.throttled:
        words = f"its clock is throttled: {', '.join(gpu.throttled)}"
        problems.append(("warn", words, "check cooling and power: nvidia-smi -q -d PERFORMANCE"))
    if gpu.processes:
        words = f"used by others: process {', '.join(map(str, gpu.processes))}"
        problems.append(("warn", words, "request whole nodes: --exclusive in site.toml"))
    value = "; ".join(words for _, words, _ in problems)
    if not problems:
        unknown = "ECC not known" if gpu.uncorrected is None else f"{gpu.corrected or 0} corrected"
        value = f"healthy, memory errors: {unknown}"
    return Finding(
        node=node,
        what="gpu",
        value=f"{number} ({gpu.name}): {value}",
        verdict=problems[0][0] if problems else "ok",
        cure="; ".join(cure for _, _, cure in problems) or None,
    )


def _links(facts: Facts) -> Iterator[Finding]:
    for node, result in facts.results.items():
        if result.links_fault is not None:
            yield Finding(
                node=facts.names[node],
                what="all-reduce",
                value=result.links_fault,
                verdict="fail",
                cure="its process failed on this node: check that torch starts there",
            )
    seen: dict[tuple[int, ...], list[Link]] = {}
    for result in facts.results.values():
        for link in result.links:
            seen.setdefault(link.nodes, []).append(link)
    ends = {nodes: _slower(links) for nodes, links in seen.items()}
    speeds = [end.bandwidth for end in ends.values() if end.bandwidth and len(end.nodes) == 2]
    for nodes, end in sorted(ends.items(), key=lambda item: (len(item[0]), item[0])):
        pair = len(nodes) == 2
        names = " – ".join(facts.names[node] for node in nodes) if pair else "all nodes"
        slow = pair and _is_slow(end.bandwidth, speeds)
        value = f"{quantity(end.bandwidth, 'B/s')} by {facts.backend}"
        if slow:
            value += f", others {quantity(statistics.median(speeds), 'B/s')}"
        cure = None
        if end.fault or slow:
            names_it = "GLOO_SOCKET_IFNAME in site.toml names the interface"
            if facts.backend == "nccl":  # a job uses gloo as well, between the hosts
                names_it = "NCCL_SOCKET_IFNAME and GLOO_SOCKET_IFNAME in site.toml name it"
            cure = f"check the interface of the link between them; {names_it}"
        yield Finding(
            node=names,
            what="link" if pair else "all-reduce",
            value=f"no all-reduce: {end.fault}" if end.fault else value,
            verdict="fail" if end.fault else "warn" if slow else "ok",
            cure=cure,
        )


def _slower(links: list[Link]) -> Link:
    """Return the worse of the results that the nodes of a link measured."""
    return min(links, key=_rank)


def _rank(link: Link) -> tuple[bool, bool, float]:
    """Return a sort key, smallest for the worst result; errors come before timeouts."""
    return link.fault is None, "timeout" in (link.fault or ""), link.bandwidth or 0.0


def _reading(facts: Facts) -> Iterator[Finding]:
    speeds = [result.read_bandwidth for result in facts.results.values() if result.read_bandwidth]
    for node, result in facts.results.items():
        slow = _is_slow(result.read_bandwidth, speeds)
        value = result.read_fault or quantity(result.read_bandwidth, "B/s")
        if slow:
            value += f"; others {quantity(statistics.median(speeds), 'B/s')}"
        yield Finding(
            node=facts.names[node],
            what="shared read",
            value=value,
            verdict="fail" if result.read_fault else "warn" if slow else "ok",
            cure="check its mount of the shared file system" if result.read_fault or slow else None,
        )


def _is_slow(speed: float | None, speeds: list[float]) -> bool:
    return speed is not None and speed < _SLOW * statistics.median(speeds)
