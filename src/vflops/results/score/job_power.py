"""The power of a training job, from the telemetry of its attempts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from vflops.record.readout.contents import Contents
from vflops.record.readout.timeline import Part, Span, Timeline
from vflops.record.readout.trained_job import TrainedJob
from vflops.results.score.node_power import NOT_SAMPLED, node_telemetry
from vflops.results.score.score_file import PowerScore

if TYPE_CHECKING:
    from vflops.record.formats.telemetry import Telemetry
    from vflops.results.power.run_power import PowerSummary


def job_power(
    contents: Contents, trained: TrainedJob, shared_with: tuple[int, ...] = ()
) -> PowerScore:
    """Return the mean power over the steps of all attempts, or the reason why it is unknown.

    ``shared_with`` are the jobs that used the same sensors at the same time.
    """
    logs = contents.imported_power()
    attempts: list[tuple[PowerSummary | str, float]] = []
    timeline = Timeline([trained])
    for folder, attempt in zip(trained.folders, trained.attempts, strict=True):
        if attempt.span_s is not None:
            parts = timeline.parts_of(trained.record.job, folder, attempt.span_s)
            if any(part.telemetry for part in parts):
                start_s, end_s = attempt.span_s
                summary = _attempt_power(contents, parts, attempt.span_s, logs)
                attempts.append((summary, end_s - start_s))
    measured = [(power, span_s) for power, span_s in attempts if not isinstance(power, str)]
    if not attempts or len(measured) < len(attempts):
        reasons = [reason for reason, _ in attempts if isinstance(reason, str)]
        return PowerScore(reason=reasons[0] if reasons else NOT_SAMPLED)
    if len({power.includes for power, _ in measured}) > 1:
        return PowerScore(reason="the attempts did not measure the same parts")
    energy_j = math.fsum(power.energy_j or 0.0 for power, _ in measured)
    # The mean is over the covered time, so that gaps do not change it.
    covered_s = math.fsum(span_s * power.covered for power, span_s in measured)
    power_w = math.fsum((power.power_w or 0.0) * span_s for power, span_s in measured) / math.fsum(
        span_s for _, span_s in measured
    )
    return PowerScore(
        power_w=power_w,
        energy_j=energy_j,
        covered_s=covered_s,
        includes=measured[0][0].includes,
        sources=measured[0][0].sources,
        shared_with=shared_with,
    )


def _attempt_power(
    contents: Contents, parts: Sequence[Part], span_s: Span, logs: Sequence[Telemetry]
) -> PowerSummary | str:
    """Return the power of one attempt's nodes, counting each sensor once, or a reason."""
    from vflops.results.power.run_power import host_power, sum_over_nodes

    hosts: dict[str, list[Telemetry]] = {part.host: [] for part in parts}
    first = node_telemetry(parts[0], read=contents.telemetry)
    if first is None:
        return f"{parts[0].host}: {NOT_SAMPLED}"
    # Events use a monotonic clock, so the times of all nodes are aligned with the first node.
    telemetry, zero_s = first
    hosts[parts[0].host].append(telemetry)
    for part in parts[1:]:
        sampled = node_telemetry(part, zero_s, contents.telemetry)
        if sampled is not None:
            hosts[part.host].append(sampled[0])
    aligned = [log.shifted(log.utc_offset_s - zero_s) for log in logs if len(hosts) == 1]
    unsampled = [host for host, telemetries in hosts.items() if not telemetries]
    if unsampled:
        return f"{', '.join(unsampled)}: {NOT_SAMPLED}"
    summaries = {
        host: host_power(telemetries, *span_s, aligned) for host, telemetries in hosts.items()
    }
    reasons = {host: power.reason for host, power in summaries.items() if power.energy_j is None}
    if len(hosts) == 1 and reasons:
        return next(iter(reasons.values())) or NOT_SAMPLED
    if reasons:
        return "; ".join(f"{host}: {reason}" for host, reason in reasons.items())
    total = sum_over_nodes(list(summaries.values()))
    return total if total.energy_j is not None else total.reason or NOT_SAMPLED
