"""``power/result_<k>/node_<n>.txt``: the power of a node during training.

MLPerf's summary treats each reading as the mean power since the previous one. The readings here are
such means, computed as for the score, so that the summary computes the same energy.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from vflops.publish.export.mlperf.course import Course
from vflops.publish.export.mlperf.mllog_lines import Line
from vflops.record.formats.telemetry import Telemetry
from vflops.record.log.imported_power import read_imported
from vflops.record.readout.timeline import Timeline
from vflops.results.power.run_power import PowerSummary, host_power
from vflops.results.score.node_power import NOT_SAMPLED, node_telemetry


@dataclass(frozen=True)
class NodePower:
    """The power log of a node, and which parts of the node it includes."""

    includes: tuple[str, ...]
    lines: tuple[Line, ...]


@dataclass(frozen=True)
class _NodeTelemetry:
    """The telemetry of one node, and the power logs that were imported for it."""

    telemetry: Telemetry
    imported: tuple[Telemetry, ...]

    def power_between(self, start_s: float, end_s: float) -> PowerSummary:
        sampled, *logs = (_window(log, start_s, end_s) for log in (self.telemetry, *self.imported))
        return host_power([sampled], start_s, end_s, logs)


def node_powers(course: Course) -> tuple[NodePower, ...] | str:
    """Return the power log of each node, or a reason why there is none."""
    trained = course.trained
    if len(trained.attempts) != 1:
        return f"job {trained.record.job} was interrupted, so its power has a gap"
    start_s, end_s = (moment_ms / 1000 for moment_ms in (course.run_ms, course.stop_ms))
    zero_s = course.unix_ms(0.0) / 1000  # start of the clock of events and telemetry
    nodes = _node_telemetry(course, (start_s - zero_s, end_s - zero_s))
    if isinstance(nodes, str):
        return nodes
    powers: list[NodePower] = []
    for number, node in enumerate(nodes):
        total = node.power_between(start_s - zero_s, end_s - zero_s)
        if total.power_w is None:
            return f"node {number}: {total.reason}"
        lines = tuple(_lines(course, node, total, zero_s))
        powers.append(NodePower(total.includes, lines))
    return tuple(powers)


def _node_telemetry(course: Course, span_s: tuple[float, float]) -> list[_NodeTelemetry] | str:
    trained = course.trained
    parts = Timeline([trained]).parts_of(trained.record.job, trained.folders[0], span_s)
    first = node_telemetry(parts[0])
    if first is None:
        return NOT_SAMPLED
    telemetry, zero_s = first
    logs = read_imported(course.run) if len(parts) == 1 else []
    shifted_logs = tuple(log.shifted(log.utc_offset_s - zero_s) for log in logs)
    nodes = [_NodeTelemetry(telemetry, shifted_logs)]
    for number, part in enumerate(parts[1:], start=1):
        sampled = node_telemetry(part, zero_s)
        if sampled is None:
            return f"node {number}: {NOT_SAMPLED}"
        nodes.append(_NodeTelemetry(sampled[0], ()))
    return nodes


def _lines(
    course: Course, node: _NodeTelemetry, total: PowerSummary, zero_s: float
) -> Iterator[Line]:
    start_s, end_s = (ms / 1000 - zero_s for ms in (course.run_ms, course.stop_ms))
    times_s = [time_s for time_s in node.telemetry.times_s if start_s < time_s < end_s]
    metadata = {"includes": ", ".join(total.includes), "sources": ", ".join(total.sources)}
    source = f"jobs/{course.trained.record.job}/{course.trained.folders[0].name}/telemetry.jsonl"
    yield Line(course.run_ms, "power_measurement_start", metadata=metadata, source=source)
    # Losses of the power supply are either measured or unknown; they are not estimated.
    yield Line(course.run_ms, "conversion_eff", 1.0, source=source)
    for from_s, to_s in pairwise((start_s, *times_s, end_s)):
        power = node.power_between(from_s, to_s)
        if power.power_w is not None and power.includes == total.includes:
            watts = round(power.power_w, 3)
            yield Line(course.unix_ms(to_s), "power_reading", watts, source=source)
    yield Line(course.stop_ms, "power_measurement_stop", source=source)


def _window(telemetry: Telemetry, start_s: float, end_s: float) -> Telemetry:
    """Return the samples of a span and one on either side, found by bisection."""
    times_s: Sequence[float] = telemetry.times_s
    first = max(bisect_right(times_s, start_s) - 1, 0)
    last = bisect_left(times_s, end_s) + 1
    width = len(telemetry.header.series)
    return replace(
        telemetry,
        times_s=times_s[first:last],
        utc_s=telemetry.utc_s[first:last],
        table=array("d", telemetry.table[first * width : last * width]),
    )
