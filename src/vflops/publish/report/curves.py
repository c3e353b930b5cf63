"""The points of the training charts, from the progress and the telemetry of a job."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from vflops.metrics.summation import sum_in_order
from vflops.record.formats.job_events import WORK_PHASES
from vflops.record.formats.telemetry import Series, Telemetry
from vflops.record.readout.contents import Contents
from vflops.record.readout.trained_job import Attempt, TrainedJob

MAX_POINTS = 300
"""The maximum number of points of a line, so that long training does not make huge pages."""
_MIN_INTERVAL_S = 0.2
"""The shortest interval over which a speed is computed; shorter ones are too inexact."""

Points = list[tuple[float, float]]


@dataclass(frozen=True)
class Line:
    """One quantity over the seconds of a job; each attempt has its own line."""

    name: str
    attempt: int
    points: Points


@dataclass(frozen=True)
class TelemetryLines:
    """The telemetry of a job."""

    power: list[Line]
    """Watts by part of the machine."""
    utilisation: list[Line]
    """Percent."""
    traffic: list[Line]
    """Bytes per second; lines without traffic are left out."""


def loss_over_epochs(trained: TrainedJob) -> Points:
    """Return the training loss by epoch, without steps that a later attempt repeated."""
    points: Points = []
    for _, entry in trained.progress:
        while points and points[-1][0] >= entry.epoch:
            points.pop()
        if entry.loss is not None:
            points.append((entry.epoch, entry.loss))
    return thin(points)


def speed_unit(trained: TrainedJob) -> str:
    """Return the unit of ``throughput``: tokens/s for a language model, samples/s for others."""
    unit = trained.record.data.unit
    return f"{unit.name if unit else 'samples'}/s"


def throughput(trained: TrainedJob) -> list[Line]:
    """Return samples, or their units, per second of work time, one line per attempt.

    Each point is the mean speed between two log entries.
    """
    lines = []
    unit = trained.record.data.unit
    count = unit.count if unit else 1
    for number, before_s, attempt in _attempts_with_offsets(trained):
        compiled = trained.started is not None and trained.started.compiled
        # The first step compiles, which is not work time: start from the first log entry.
        last = None if compiled else (0.0, attempt.first_sample)
        points: Points = []
        for note in attempt.points:
            work_s = sum_in_order(note.phases.get(phase, 0.0) for phase in WORK_PHASES)
            time_s = before_s + sum_in_order(note.phases.values())
            if last is not None:
                if work_s - last[0] < _MIN_INTERVAL_S or note.samples <= last[1]:
                    continue  # only a checkpoint, whose time counts for the next samples
                points.append((time_s, count * (note.samples - last[1]) / (work_s - last[0])))
            last = (work_s, note.samples)
        if points:
            lines.append(Line(speed_unit(trained), number, thin(points)))
    return lines


def telemetry_lines(contents: Contents, trained: TrainedJob) -> TelemetryLines:
    """Return the telemetry over the seconds of the job."""
    logs, folders = contents.imported_power(), trained.folders
    lines = TelemetryLines([], [], [])
    for number, before_s, attempt in _attempts_with_offsets(trained):
        path = folders[number] / "telemetry.jsonl"
        if attempt.began_s is None or not path.is_file():
            continue
        telemetry = contents.telemetry(path)
        span = _Span(number, before_s, attempt.began_s, attempt.wall_s)
        lines.power.extend(
            _power_lines([telemetry, *(log.on_clock_of(telemetry) for log in logs)], span)
        )
        lines.utilisation.extend(_utilisation(telemetry, span))
        lines.traffic.extend(
            line for line in _traffic(telemetry, span) if any(y for _, y in line.points)
        )
    return lines


def thin(points: Points) -> Points:
    """Return at most ``MAX_POINTS`` points, each the mean of neighbouring points."""
    size = -(-len(points) // MAX_POINTS)
    if size <= 1:
        return points
    groups = (points[start : start + size] for start in range(0, len(points), size))
    return [
        (statistics.fmean(x for x, _ in group), statistics.fmean(y for _, y in group))
        for group in groups
    ]


def _attempts_with_offsets(trained: TrainedJob) -> list[tuple[int, float, Attempt]]:
    """Return each attempt with its number and the duration of the attempts before it."""
    timed, before_s = [], 0.0
    for number, attempt in enumerate(trained.attempts):
        timed.append((number, before_s, attempt))
        before_s += attempt.wall_s
    return timed


@dataclass(frozen=True)
class _Span:
    """The time span of an attempt, on its own clock and within the job."""

    attempt: int
    before_s: float
    began_s: float
    length_s: float

    def line(self, name: str, points: Points) -> Line:
        """Return ``points`` within the span, in seconds of the job."""
        inside = [
            (self.before_s + time_s - self.began_s, value)
            for time_s, value in points
            if 0 <= time_s - self.began_s <= self.length_s
        ]
        return Line(name, self.attempt, thin(inside))


def _power_lines(recorded: Sequence[Telemetry], span: _Span) -> list[Line]:
    """Return one line per part of the machine; each imported log is a feed of the node."""
    lines = []
    for number, telemetry in enumerate(recorded):
        for part, name in (
            ("accelerator", "accelerators"),
            ("processor", "processors"),
            ("node", "node" if number < 2 else f"node, feed {number}"),
        ):
            meters = [
                _in_watts(telemetry, series)
                for series in _power_series([s for s in telemetry.series() if s.part == part])
            ]
            line = span.line(name, _sum_columns(meters))
            if line.points:
                lines.append(line)
    return lines


def _power_series(series: Sequence[Series]) -> list[Series]:
    """Return the power series, and the energy series of devices without one."""
    watts = [s for s in series if (s.kind, s.unit) == ("gauge", "W")]
    metered = {s.id.rpartition(".")[0] for s in watts}
    joules = [s for s in series if (s.kind, s.unit) == ("counter", "J")]
    return watts + [s for s in joules if s.id.rpartition(".")[0] not in metered]


def _in_watts(telemetry: Telemetry, series: Series) -> dict[float, float]:
    return _rate(telemetry, series) if series.kind == "counter" else _readings(telemetry, series)


def _utilisation(telemetry: Telemetry, span: _Span) -> list[Line]:
    accelerators = _select(
        telemetry, lambda s: s.part == "accelerator" and s.id.endswith(".utilisation")
    )
    busy = _sum_columns([_readings(telemetry, s) for s in accelerators])
    mean = [(time_s, value / len(accelerators)) for time_s, value in busy]
    lines = [span.line("accelerators", mean)]
    for name, id in (("processors, this run", "cpu.run"), ("processors, others", "cpu.others")):
        matching = _select(telemetry, lambda s, id=id: s.id == id)  # type: ignore[misc]
        lines.append(span.line(name, _sum_columns([_readings(telemetry, s) for s in matching])))
    return [line for line in lines if line.points]


_TRAFFIC: tuple[tuple[str, Callable[[Series], bool]], ...] = (
    (
        "received from other nodes",
        lambda s: s.part == "network-between" and s.id.endswith(".received"),
    ),
    (
        "sent to other nodes",
        lambda s: s.part == "network-between" and s.id.endswith(".sent"),
    ),
    (  # within the node, what one rank sends another receives: count it once
        "within the node",
        lambda s: s.part == "network-within" and s.id.endswith(".received"),
    ),
    ("over NVLink", lambda s: s.id.endswith(".nvlink_received")),
    ("read from storage", lambda s: s.id == "disk.run_read"),
    ("written to storage", lambda s: s.id == "disk.run_written"),
)


def _traffic(telemetry: Telemetry, span: _Span) -> list[Line]:
    lines = []
    for name, wanted in _TRAFFIC:
        counters = [s for s in _select(telemetry, wanted) if s.kind == "counter"]
        lines.append(span.line(name, _sum_columns([_rate(telemetry, s) for s in counters])))
    return lines


def _select(telemetry: Telemetry, wanted: Callable[[Series], bool]) -> list[Series]:
    return [s for s in telemetry.series() if wanted(s)]


def _readings(telemetry: Telemetry, series: Series) -> dict[float, float]:
    pairs = zip(telemetry.times_s, telemetry.column(series.id), strict=True)
    return {time_s: value for time_s, value in pairs if value is not None}


def _rate(telemetry: Telemetry, series: Series) -> dict[float, float]:
    """Return a counter's increase per second between readings, by the time of the later one.

    Intervals in which the counter was reset are left out.
    """
    return {
        b_s: (b - a) / (b_s - a_s)
        for (a_s, a), (b_s, b) in pairwise(_readings(telemetry, series).items())
        if b >= a
    }


def _sum_columns(columns: Sequence[dict[float, float]]) -> Points:
    """Return the sum at every time at which all columns have a value."""
    if not columns:
        return []
    times_s = [t for t in columns[0] if all(t in column for column in columns[1:])]
    return [(t, sum_in_order(column[t] for column in columns)) for t in times_s]
