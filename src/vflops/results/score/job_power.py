"""The power of a training job, from what was sampled while it ran."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from vflops.record.readout.contents import Contents
from vflops.record.readout.timeline import Part, Span, Timeline
from vflops.record.readout.trained_job import TrainedJob
from vflops.results.score.node_power import NOT_SAMPLED, sampled_by
from vflops.results.score.score_file import PowerScore

if TYPE_CHECKING:
    from vflops.record.formats.telemetry import Telemetry
    from vflops.results.power.run_power import PowerSummary


def job_power(
    contents: Contents, trained: TrainedJob, shared_with: tuple[int, ...] = ()
) -> PowerScore:
    """Mean power from the first step to the last, over all attempts; or why there is none.

    ``shared_with`` are the jobs that its sensors were also those of.
    """
    # Telemetry is read only here: commands that do not score do not pay for it.
    from vflops.record.log.imported_power import read_imported

    logs = read_imported(contents.folder.path)
    found: list[tuple[PowerSummary | str, float]] = []
    timeline = Timeline([trained])
    for place, attempt in zip(trained.folders, trained.attempts, strict=True):
        if attempt.span_s is not None:
            parts = timeline.parts_of(trained.record.job, place, attempt.span_s)
            if any(part.telemetry for part in parts):
                start_s, end_s = attempt.span_s
                found.append((_power(contents, parts, attempt.span_s, logs), end_s - start_s))
    measured = [(each, span_s) for each, span_s in found if not isinstance(each, str)]
    if not found or len(measured) < len(found):
        reasons = [each for each, _ in found if isinstance(each, str)]
        return PowerScore(reason=reasons[0] if reasons else NOT_SAMPLED)
    if len({each.includes for each, _ in measured}) > 1:
        return PowerScore(reason="the attempts did not measure the same parts")
    energy_j = math.fsum(each.energy_j or 0.0 for each, _ in measured)
    # Mean power over what was covered, so a gap neither adds nor hides energy.
    covered_s = math.fsum(span_s * each.covered for each, span_s in measured)
    power_w = math.fsum((each.power_w or 0.0) * span_s for each, span_s in measured) / math.fsum(
        span_s for _, span_s in measured
    )
    return PowerScore(
        power_w=power_w,
        energy_j=energy_j,
        covered_s=round(covered_s, 3),
        includes=measured[0][0].includes,
        sources=measured[0][0].sources,
        shared_with=shared_with,
    )


def _power(
    contents: Contents, parts: Sequence[Part], span_s: Span, logs: Sequence[Telemetry]
) -> PowerSummary | str:
    """The power of the nodes of one attempt, each machine's sensors once; or why there is none."""
    from vflops.results.power.run_power import host_power, over_nodes

    hosts: dict[str, list[Telemetry]] = {part.host: [] for part in parts}
    first = sampled_by(parts[0], read=contents.telemetry)
    if first is None:
        return f"{parts[0].host}: {NOT_SAMPLED}"
    # Events have a clock that nobody sets: all nodes are placed on that of the first.
    own, zero_s = first
    hosts[parts[0].host].append(own)
    for part in parts[1:]:
        found = sampled_by(part, zero_s, contents.telemetry)
        if found is not None:
            hosts[part.host].append(found[0])
    placed = [log.shifted(log.utc_offset_s - zero_s) for log in logs if len(hosts) == 1]
    blind = [host for host, sampled in hosts.items() if not sampled]
    if blind:
        return f"{', '.join(blind)}: {NOT_SAMPLED}"
    summaries = {host: host_power(each, *span_s, placed) for host, each in hosts.items()}
    reasons = {host: each.reason for host, each in summaries.items() if each.energy_j is None}
    if len(hosts) == 1 and reasons:
        return next(iter(reasons.values())) or NOT_SAMPLED
    if reasons:
        return "; ".join(f"{host}: {reason}" for host, reason in reasons.items())
    total = over_nodes(list(summaries.values()))
    return total if total.energy_j is not None else total.reason or NOT_SAMPLED
