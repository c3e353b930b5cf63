"""Power and utilisation of the nodes of an ensemble or a search, counting each sensor once."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from vflops.metrics import mean
from vflops.record.folder import RunFolder
from vflops.record.readout.timeline import Part, Span, Timeline, concurrent_parts
from vflops.record.readout.trained_job import TrainedJob
from vflops.results.score.score_file import NodeScore, PowerScore

if TYPE_CHECKING:
    from vflops.record.formats.telemetry import Series, Telemetry
    from vflops.results.power.run_power import PowerSummary

NOT_SAMPLED = "nothing was sampled"


def node_scores(
    folder: RunFolder,
    timeline: Timeline,
    window_s: Span,
    read: Callable[[Path], Telemetry] | None = None,
) -> tuple[NodeScore, ...]:
    """Return one score per host, sorted by name, over the time from its first to its last step.

    ``read`` may return telemetry that was read before.
    """
    from vflops.record.log.imported_power import read_imported

    hosts = sorted(timeline.parts.items())
    # An imported log does not name its node, so it is used only if there is one node.
    logs = read_imported(folder.path) if len(hosts) == 1 else []
    return tuple(_node_score(host, parts, timeline, window_s, logs, read) for host, parts in hosts)


def total_power(nodes: Sequence[NodeScore], length_s: float) -> PowerScore:
    """Return the power of all hosts: their energy while training / the length of the window."""
    unmeasured = [node for node in nodes if node.power.power_w is None]
    if unmeasured or not nodes or length_s <= 0:
        return PowerScore(reason=_missing_power_reason(unmeasured))
    if len({node.power.includes for node in nodes}) > 1:
        parts = (f"{node.host}: {', '.join(node.power.includes)}" for node in nodes)
        return PowerScore(reason=f"the nodes do not measure the same: {'; '.join(parts)}")
    sources = dict.fromkeys(source for node in nodes for source in node.power.sources)
    return PowerScore(
        power_w=math.fsum((n.power.power_w or 0.0) * n.trained_s for n in nodes) / length_s,
        energy_j=math.fsum(node.power.energy_j or 0.0 for node in nodes),
        covered_s=length_s * min(_covered_share(node) for node in nodes),
        includes=nodes[0].power.includes,
        sources=tuple(sources),
    )


def utilisation(nodes: Sequence[NodeScore]) -> float | None:
    """Return the mean over all accelerators of all hosts, in %; None without readings."""
    count = sum(node.accelerators for node in nodes)
    busy = math.fsum((node.utilisation or 0.0) * node.accelerators for node in nodes)
    return busy / count if count else None


def jobs_sharing_meters(
    folder: RunFolder, trained: Sequence[TrainedJob]
) -> dict[int, tuple[int, ...]]:
    """Return for each job the other jobs that used the same meters at the same time."""
    from vflops.record.log.imported_power import imported_files
    from vflops.record.log.telemetry_log import read_header
    from vflops.results.power.run_power import meter_name

    shared: defaultdict[int, set[int]] = defaultdict(set)
    has_node_log = bool(imported_files(folder.path))  # all jobs of a node share its meter
    for parts in Timeline(trained).parts.values() if len(trained) > 1 else ():
        metered = [
            (part, {name for s in read_header(part.telemetry).series if (name := meter_name(s))})
            for part in parts
            if part.telemetry
        ]
        meters = {id(part): names for part, names in metered}
        sampled = [part for part, _ in metered]
        for part, others in zip(sampled, concurrent_parts(sampled), strict=True):
            for other in others:
                if has_node_log or meters[id(part)] & meters[id(other)]:
                    shared[part.job].add(other.job)
    return {job: tuple(sorted(others)) for job, others in shared.items()}


def node_telemetry(
    part: Part, zero_s: float | None = None, read: Callable[[Path], Telemetry] | None = None
) -> tuple[Telemetry, float] | None:
    """Return a node's telemetry with times relative to ``zero_s``, and ``zero_s``.

    ``zero_s`` is a time on the common timeline. Without it, times are unchanged, and the zero of
    the node's clock is returned. ``read`` may return telemetry that was read before.
    """
    from vflops.record.log import telemetry_log

    if part.telemetry is None:
        return None
    telemetry = (read or telemetry_log.read)(part.telemetry)
    node_zero_s = part.zero_s
    if node_zero_s is None:
        node_zero_s = telemetry.utc_offset_s - part.offset_s
    if zero_s is None:
        return telemetry, node_zero_s
    return telemetry.shifted(node_zero_s - zero_s), zero_s


def _power_score(summary: PowerSummary, span_s: float) -> PowerScore:
    if summary.power_w is None:
        return PowerScore(reason=summary.reason)
    return PowerScore(
        power_w=summary.power_w,
        energy_j=summary.energy_j,
        covered_s=span_s * summary.covered,
        includes=summary.includes,
        sources=summary.sources,
    )


def _node_score(
    host: str,
    parts: Sequence[Part],
    timeline: Timeline,
    window_s: Span,
    logs: Sequence[Telemetry],
    read: Callable[[Path], Telemetry] | None,
) -> NodeScore:
    from vflops.results.power.run_power import host_power

    zero_s = window_s[0]  # as Unix time, microseconds would not be exact
    start_s = max(min(part.span_s[0] for part in parts) - zero_s, 0.0)
    end_s = min(max(part.span_s[1] for part in parts), window_s[1]) - zero_s
    sampled = [pair[0] for part in parts if (pair := node_telemetry(part, zero_s, read))]
    power, busy = PowerScore(reason=NOT_SAMPLED), list[float]()
    if sampled and start_s < end_s:
        # An imported log uses UTC, so it is as accurate as the clock of its node.
        aligned = [log.shifted(log.utc_offset_s - zero_s) for log in logs]
        power = _power_score(host_power(sampled, start_s, end_s, aligned), end_s - start_s)
        busy = _utilisation(sampled, start_s, end_s)
    records = [part.record for part in parts if part.record]
    clocks = [record.clock for record in records if timeline.offset_s(record) is not None]
    best = min(clocks, key=lambda clock: clock.uncertainty_s or 0.0, default=None)
    faults = [record.clock.fault for record in records if record.clock.fault]
    return NodeScore(
        host=host,
        machine=records[0].machine if records else "",
        jobs=tuple(dict.fromkeys(part.job for part in parts)),
        offset_s=best.offset_s if best else None,
        uncertainty_s=best.uncertainty_s if best else None,
        fault=None if best else (faults or ["it was not compared with this run's clock"])[0],
        trained_s=end_s - start_s,
        power=power,
        accelerators=len(busy),
        utilisation=mean(busy) if busy else None,
    )


def _utilisation(sampled: Sequence[Telemetry], start_s: float, end_s: float) -> list[float]:
    """Return the mean utilisation of each accelerator over the covered time."""
    from vflops.results.power.energy import integrate_gauge, join_energy

    devices: dict[str, list[tuple[Telemetry, Series]]] = {}
    for telemetry in sampled:
        for series in telemetry.series("accelerator"):
            device, _, quantity = series.id.rpartition(".")
            if quantity == "utilisation":
                devices.setdefault(series.device or device, []).append((telemetry, series))
    means = [
        join_energy(series, start_s, end_s, integrate_gauge).mean_power_w
        for series in devices.values()
    ]
    return [share for share in means if share is not None]


def _covered_share(node: NodeScore) -> float:
    """Return the share of a node's training time that its readings cover."""
    return (node.power.covered_s or 0.0) / node.trained_s if node.trained_s else 0.0


def _missing_power_reason(nodes: Sequence[NodeScore]) -> str:
    """Return which hosts have no readings and why, grouped by reason."""
    reasons: dict[str, list[str]] = {}
    for node in nodes:
        reasons.setdefault(node.power.reason or NOT_SAMPLED, []).append(node.host)
    lines = [f"{', '.join(hosts)}: {reason}" for reason, hosts in reasons.items()]
    return "; ".join(lines) or NOT_SAMPLED
