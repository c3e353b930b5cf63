"""What a training's charts draw: its course, and what was sampled meanwhile, as plain points."""

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
"""Of one line: a day of training must not make a page of many megabytes."""
_LEAST_INTERVAL_S = 0.2
"""A speed over less time than this says more of the clock than of the machine."""

Points = list[tuple[float, float]]


@dataclass(frozen=True)
class Line:
    """One quantity over the seconds of a job; an attempt is a line of its own."""

    name: str
    attempt: int
    points: Points


@dataclass(frozen=True)
class Sampled:
    """What was sampled while a job ran."""

    power: list[Line]
    """Watts, by part of the machine."""
    utilisation: list[Line]
    """Per cent."""
    traffic: list[Line]
    """Bytes a second; what moved none is left out."""


def loss_over_epochs(trained: TrainedJob) -> Points:
    """Loss by epoch; what was lost with an attempt is left out."""
    points: Points = []
    for _, each in trained.progress:
        while points and points[-1][0] >= each.epoch:
            points.pop()
        if each.loss is not None:
            points.append((each.epoch, each.loss))
    return thinned(points)


def throughput(trained: TrainedJob) -> list[Line]:
    """Samples a second between two notes, over the time that counts as work, an attempt a line."""
    found = []
    for number, before_s, attempt in _timed(trained):
        compiled = trained.started is not None and trained.started.compiled
        # The sample of the step that compiles has no time of its own: the first note is the base.
        last = None if compiled else (0.0, attempt.first_sample)
        points: Points = []
        for note in attempt.points:
            work_s = sum(note.phases.get(phase, 0.0) for phase in WORK_PHASES)
            time_s = before_s + sum(note.phases.values())
            if last is not None:
                if work_s - last[0] < _LEAST_INTERVAL_S or note.samples <= last[1]:
                    continue  # a checkpoint alone: its time goes to the samples after it
                points.append((time_s, (note.samples - last[1]) / (work_s - last[0])))
            last = (work_s, note.samples)
        if points:
            found.append(Line("samples/s", number, thinned(points)))
    return found


def sampled(folder: RunFolder, trained: TrainedJob) -> Sampled:
    """The sensors over the seconds of the job, from its first process to its last note."""
    logs = read_imported(folder.path)
    folders = folder.logged_attempts(trained.record.job)
    found = Sampled([], [], [])
    for number, before_s, attempt in _timed(trained):
        path = folders[number] / "telemetry.jsonl"
        if attempt.began_s is None or not path.is_file():
            continue
        own = read(path)
        span = _Span(number, before_s, attempt.began_s, attempt.wall_s)
        found.power.extend(_power([own, *(log.on_clock_of(own) for log in logs)], span))
        found.utilisation.extend(_gauges(own, span))
        found.traffic.extend(line for line in _rates(own, span) if any(y for _, y in line.points))
    return found


def thinned(points: Points) -> Points:
    """At most ``MOST_POINTS`` points: the means of as many neighbours as it takes."""
    size = -(-len(points) // MOST_POINTS)
    if size <= 1:
        return points
    groups = (points[start : start + size] for start in range(0, len(points), size))
    return [
        (statistics.fmean(x for x, _ in group), statistics.fmean(y for _, y in group))
        for group in groups
    ]


def _timed(trained: TrainedJob) -> list[tuple[int, float, Attempt]]:
    """Every attempt with its number and the seconds of the job before it."""
    found, before_s = [], 0.0
    for number, attempt in enumerate(trained.attempts):
        found.append((number, before_s, attempt))
        before_s += attempt.wall_s
    return found


@dataclass(frozen=True)
class _Span:
    """The seconds of an attempt, on its clock and in the job."""

    attempt: int
    before_s: float
    began_s: float
    length_s: float

    def line(self, name: str, points: Points) -> Line:
        """``points`` within the span, with the seconds of the job."""
        inside = [
            (self.before_s + time_s - self.began_s, value)
            for time_s, value in points
            if 0 <= time_s - self.began_s <= self.length_s
        ]
        return Line(name, self.attempt, thinned(inside))


def _power(recorded: Sequence[Telemetry], span: _Span) -> list[Line]:
    """One line a part of the machine; several logs of a node are its several feeds."""
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
    """The readings of power; of a thing that has none, those of its energy."""
    watts = [each for each in series if (each.kind, each.unit) == ("gauge", "W")]
    metered = {each.id.rpartition(".")[0] for each in watts}
    joules = [each for each in series if (each.kind, each.unit) == ("counter", "J")]
    return watts + [each for each in joules if each.id.rpartition(".")[0] not in metered]


def _in_watts(telemetry: Telemetry, series: Series) -> dict[float, float]:
    return _rate(telemetry, series) if series.kind == "counter" else _readings(telemetry, series)


def _gauges(telemetry: Telemetry, span: _Span) -> list[Line]:
    accelerators = _matching(
        telemetry, lambda each: each.part == "accelerator" and each.id.endswith(".utilisation")
    )
    busy = _sum([_readings(telemetry, each) for each in accelerators])
    mean = [(time_s, value / len(accelerators)) for time_s, value in busy]
    lines = [span.line("accelerators", mean)]
    for name, id in (("processors, this run", "cpu.run"), ("processors, others", "cpu.others")):
        found = _matching(telemetry, lambda each, id=id: each.id == id)  # type: ignore[misc]
        lines.append(span.line(name, _sum([_readings(telemetry, each) for each in found])))
    return [line for line in lines if line.points]


_TRAFFIC: tuple[tuple[str, Callable[[Series], bool]], ...] = (
    (
        "received from other nodes",
        lambda each: each.part == "network-between" and each.id.endswith(".received"),
    ),
    (
        "sent to other nodes",
        lambda each: each.part == "network-between" and each.id.endswith(".sent"),
    ),
    (  # what is sent within a node is received there: counted once
        "within the node",
        lambda each: each.part == "network-within" and each.id.endswith(".received"),
    ),
    ("over NVLink", lambda each: each.id.endswith(".nvlink_received")),
    ("read from storage", lambda each: each.id == "disk.run_read"),
    ("written to storage", lambda each: each.id == "disk.run_written"),
)


def _rates(telemetry: Telemetry, span: _Span) -> list[Line]:
    lines = []
    for name, wanted in _TRAFFIC:
        found = [each for each in _matching(telemetry, wanted) if each.kind == "counter"]
        lines.append(span.line(name, _sum([_rate(telemetry, each) for each in found])))
    return lines


def _matching(telemetry: Telemetry, wanted: Callable[[Series], bool]) -> list[Series]:
    return [each for each in telemetry.series() if wanted(each)]


def _readings(telemetry: Telemetry, series: Series) -> dict[float, float]:
    pairs = zip(telemetry.times_s, telemetry.column(series.id), strict=True)
    return {time_s: value for time_s, value in pairs if value is not None}


def _rate(telemetry: Telemetry, series: Series) -> dict[float, float]:
    """A counter's increase a second, at the later of two readings; none where it fell."""
    return {
        b_s: (b - a) / (b_s - a_s)
        for (a_s, a), (b_s, b) in pairwise(_readings(telemetry, series).items())
        if b >= a
    }


def _sum(columns: Sequence[dict[float, float]]) -> Points:
    """The sum at every time that all of them have: a part of the devices is not the devices."""
    if not columns:
        return []
    times_s = [t for t in columns[0] if all(t in column for column in columns[1:])]
    return [(t, sum(column[t] for column in columns)) for t in times_s]
