"""The points of a training's charts: its progress, and its telemetry."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from vflops.record.folder import RunFolder
from vflops.record.formats.job_events import WORK_PHASES
from vflops.record.formats.telemetry import Series, Telemetry
from vflops.record.log.imported_power import read_imported
from vflops.record.log.telemetry_log import read
from vflops.record.readout.trained_job import Attempt, TrainedJob

MOST_POINTS = 300
"""The most points of one line, so that long trainings do not make huge pages."""
_LEAST_INTERVAL_S = 0.2
"""The shortest interval for a speed; below it, the clock dominates."""

Points = list[tuple[float, float]]


@dataclass(frozen=True)
class Line:
    """One quantity over the seconds of a job; each attempt has its own line."""

    name: str
    attempt: int
    points: Points


@dataclass(frozen=True)
class Sampled:
    """The telemetry of a job."""

    power: list[Line]
    """Watts by part of the machine."""
    utilisation: list[Line]
    """Percent."""
    traffic: list[Line]
    """Bytes per second; lines without traffic are left out."""


def loss_over_epochs(trained: TrainedJob) -> Points:
    """Return the loss by epoch, without what was lost with an attempt."""
    points: Points = []
    for _, entry in trained.progress:
        while points and points[-1][0] >= entry.epoch:
            points.pop()
        if entry.loss is not None:
            points.append((entry.epoch, entry.loss))
    return thinned(points)


def throughput(trained: TrainedJob) -> list[Line]:
    """Return samples per second of work time between log entries, one line per attempt."""
    lines = []
    for number, before_s, attempt in _timed(trained):
        compiled = trained.started is not None and trained.started.compiled
        # The step that compiles has no time for its samples: start from the first entry.
        last = None if compiled else (0.0, attempt.first_sample)
        points: Points = []
        for note in attempt.points:
            work_s = sum(note.phases.get(phase, 0.0) for phase in WORK_PHASES)
            time_s = before_s + sum(note.phases.values())
            if last is not None:
                if work_s - last[0] < _LEAST_INTERVAL_S or note.samples <= last[1]:
                    continue  # only a checkpoint: its time counts for the next samples
                points.append((time_s, (note.samples - last[1]) / (work_s - last[0])))
            last = (work_s, note.samples)
        if points:
            lines.append(Line("samples/s", number, thinned(points)))
    return lines


def sampled(folder: RunFolder, trained: TrainedJob) -> Sampled:
    """Return the telemetry over the seconds of the job."""
    logs = read_imported(folder.path)
    folders = folder.logged_attempts(trained.record.job)
    lines = Sampled([], [], [])
    for number, before_s, attempt in _timed(trained):
        path = folders[number] / "telemetry.jsonl"
        if attempt.began_s is None or not path.is_file():
            continue
        telemetry = read(path)
        span = _Span(number, before_s, attempt.began_s, attempt.wall_s)
        lines.power.extend(_power([telemetry, *(log.on_clock_of(telemetry) for log in logs)], span))
        lines.utilisation.extend(_gauges(telemetry, span))
        lines.traffic.extend(
            line for line in _rates(telemetry, span) if any(y for _, y in line.points)
        )
    return lines


def thinned(points: Points) -> Points:
    """Return at most ``MOST_POINTS`` points, each the mean of some neighbours."""
    size = -(-len(points) // MOST_POINTS)
    if size <= 1:
        return points
    groups = (points[start : start + size] for start in range(0, len(points), size))
    return [
        (statistics.fmean(x for x, _ in group), statistics.fmean(y for _, y in group))
        for group in groups
    ]


def _timed(trained: TrainedJob) -> list[tuple[int, float, Attempt]]:
    """Return every attempt with its number and the seconds of the job before it."""
    timed, before_s = [], 0.0
    for number, attempt in enumerate(trained.attempts):
        timed.append((number, before_s, attempt))
        before_s += attempt.wall_s
    return timed


@dataclass(frozen=True)
class _Span:
    """The time span of an attempt, on its clock and in the job."""

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
        return Line(name, self.attempt, thinned(inside))


def _power(recorded: Sequence[Telemetry], span: _Span) -> list[Line]:
    """Return one line per part of the machine; several logs of a node are several feeds."""
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
            line = span.line(name, _sum(meters))
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


def _gauges(telemetry: Telemetry, span: _Span) -> list[Line]:
    accelerators = _matching(
        telemetry, lambda s: s.part == "accelerator" and s.id.endswith(".utilisation")
    )
    busy = _sum([_readings(telemetry, s) for s in accelerators])
    mean = [(time_s, value / len(accelerators)) for time_s, value in busy]
    lines = [span.line("accelerators", mean)]
    for name, id in (("processors, this run", "cpu.run"), ("processors, others", "cpu.others")):
        matching = _matching(telemetry, lambda s, id=id: s.id == id)  # type: ignore[misc]
        lines.append(span.line(name, _sum([_readings(telemetry, s) for s in matching])))
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
    (  # sent and received within the node: counted once
        "within the node",
        lambda s: s.part == "network-within" and s.id.endswith(".received"),
    ),
    ("over NVLink", lambda s: s.id.endswith(".nvlink_received")),
    ("read from storage", lambda s: s.id == "disk.run_read"),
    ("written to storage", lambda s: s.id == "disk.run_written"),
)


def _rates(telemetry: Telemetry, span: _Span) -> list[Line]:
    lines = []
    for name, wanted in _TRAFFIC:
        counters = [s for s in _matching(telemetry, wanted) if s.kind == "counter"]
        lines.append(span.line(name, _sum([_rate(telemetry, s) for s in counters])))
    return lines


def _matching(telemetry: Telemetry, wanted: Callable[[Series], bool]) -> list[Series]:
    return [s for s in telemetry.series() if wanted(s)]


def _readings(telemetry: Telemetry, series: Series) -> dict[float, float]:
    pairs = zip(telemetry.times_s, telemetry.column(series.id), strict=True)
    return {time_s: value for time_s, value in pairs if value is not None}


def _rate(telemetry: Telemetry, series: Series) -> dict[float, float]:
    """Return a counter's increase per second at the later of two readings; none if it fell."""
    return {
        b_s: (b - a) / (b_s - a_s)
        for (a_s, a), (b_s, b) in pairwise(_readings(telemetry, series).items())
        if b >= a
    }


def _sum(columns: Sequence[dict[float, float]]) -> Points:
    """Return the sum at every time at which all columns have a value."""
    if not columns:
        return []
    times_s = [t for t in columns[0] if all(t in column for column in columns[1:])]
    return [(t, sum(column[t] for column in columns)) for t in times_s]
