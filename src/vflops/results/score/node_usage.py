"""Utilisation, memory and traffic of all nodes of several jobs; each sensor counts once."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pydantic import Field

from vflops.metrics import mean
from vflops.metrics.summation import sum_in_order
from vflops.record.files.document import Data
from vflops.record.readout.timeline import Part, Span
from vflops.results.score.node_power import NOT_SAMPLED, node_telemetry
from vflops.units import percent

if TYPE_CHECKING:
    from vflops.record.formats.telemetry import Series, Telemetry

_MIN_COVERED = 0.9
"""The smallest share of a host's training time that the readings of a sensor must cover."""
_MAX_BINS = 60
_UNREADABLE = re.compile(r"gpu\d+")
"""What is absent if an accelerator as a whole cannot be read."""

Points = list[tuple[float, float]]


class Course(Data):
    """A quantity over time, as the mean over all devices of all hosts."""

    name: str
    points: tuple[tuple[float, float], ...]
    """Seconds since the first step, and the value."""


class NodeUsage(Data):
    """How jobs used their nodes while they trained; a figure that was not measured is None."""

    hosts: int
    accelerators: int
    """The number of accelerators with readings of any kind, or with a reason why there are none."""
    utilisation: float | None = None
    """The mean utilisation of the accelerators, in %."""
    memory_b: float | None = None
    """The peak memory in use on an accelerator, as the mean over all accelerators."""
    processors: float | None = None
    """The mean utilisation, by a job on a host, of the CPUs that it may use, in %."""
    run_memory_b: float | None = None
    """The peak memory of the processes of a job on a host, as the mean over jobs and hosts."""
    within_b_per_s: float | None = None
    """Bytes per second over loopback and NVLink, summed over all hosts."""
    between_b_per_s: float | None = None
    """Bytes per second that hosts received over their networks, summed over all hosts."""
    missing: dict[str, str] = Field(default_factory=dict)
    """The figures that were not measured, each with the reason."""
    courses: tuple[Course, ...] = ()
    """Utilisation and memory over time."""

    def course(self, name: str) -> Course | None:
        """Return the course of one figure; None if it was not measured."""
        return next((course for course in self.courses if course.name == name), None)


def node_usage(hosts: Mapping[str, Sequence[Part]], window_s: Span) -> NodeUsage:
    """Return the usage of ``hosts``, each with the parts that jobs trained on it.

    ``window_s`` is the time of the first step and of the end of all jobs. A figure is given only if
    every host measured it for nearly all of its training time.
    """
    unsampled = [host for host, parts in hosts.items() if not all(p.telemetry for p in parts)]
    if unsampled or not hosts or window_s[0] >= window_s[1]:
        reason = f"{', '.join(unsampled)}: {NOT_SAMPLED}" if unsampled else NOT_SAMPLED
        missing = dict.fromkeys((figure.name for figure in _FIGURES), reason)
        return NodeUsage(hosts=len(hosts), accelerators=0, missing=missing)
    sampled = {host: _Host(parts, window_s) for host, parts in hosts.items()}
    length_s = window_s[1] - window_s[0]
    figures: dict[str, float] = {}
    missing = {}
    courses: list[Course] = []
    for figure in _FIGURES:
        devices = {host: read.devices(figure) for host, read in sampled.items()}
        if fault := _missing_reason(figure, sampled, devices):
            missing[figure.name] = fault
            continue
        every = [device for by_host in devices.values() for device in by_host]
        figures[figure.name] = figure.value(every, length_s)
        if not figure.is_rate:
            bins = max(min(_MAX_BINS, int(length_s / max(d.interval_s for d in every))), 1)
            points = mean_course([device.readings() for device in every], length_s, bins)
            courses.append(Course(name=figure.name, points=tuple(points)))
    return NodeUsage(
        hosts=len(hosts),
        accelerators=sum(len(host.accelerators()) for host in sampled.values()),
        missing=missing,
        courses=tuple(courses),
        **figures,
    )


def mean_course(devices: Sequence[Points], length_s: float, bins: int) -> Points:
    """Return the mean over the devices that have readings in a time bin, for each bin.

    The time of a reading is counted from 0 to ``length_s``; others are left out.
    """
    width_s = length_s / bins
    by_device: list[dict[int, list[float]]] = []
    for readings in devices:
        values: dict[int, list[float]] = {}
        for time_s, value in readings:
            if 0 <= time_s <= length_s:
                values.setdefault(min(int(time_s / width_s), bins - 1), []).append(value)
        by_device.append(values)
    points: Points = []
    for number in range(bins):
        known = [
            sum_in_order(values[number]) / len(values[number])
            for values in by_device
            if number in values
        ]
        if known:
            points.append(((number + 0.5) * width_s, sum_in_order(known) / len(known)))
    return points


@dataclass(frozen=True)
class _Device:
    """One sensor of one host, in the telemetry of one or more attempts."""

    span_s: Span
    recorded: Sequence[tuple[Telemetry, Series]]

    @property
    def accelerator(self) -> str | None:
        """What identifies the accelerator on its host; None for other sensors."""
        return _accelerator(self.recorded[0][1])

    @property
    def interval_s(self) -> float:
        return max(telemetry.header.interval_s for telemetry, _ in self.recorded)

    def readings(self) -> Points:
        """Return the readings from one interval before the span to one interval after it."""
        start_s, end_s = self.span_s[0] - self.interval_s, self.span_s[1] + self.interval_s
        return [
            (time_s, value)
            for telemetry, series in self.recorded
            for time_s, value in zip(telemetry.times_s, telemetry.column(series.id), strict=True)
            if value is not None and start_s <= time_s <= end_s
        ]

    def covered(self, *, is_rate: bool) -> float:
        """Return the share of the span that readings cover."""
        return self._integral(is_rate)[0] / (self.span_s[1] - self.span_s[0])

    def total(self, *, is_rate: bool) -> float:
        """Return the increase of a counter, or the integral of a gauge, over the covered time."""
        return self._integral(is_rate)[1]

    def mean(self) -> float:
        """Return the mean of a gauge over the covered time."""
        covered_s, area = self._integral(False)
        return area / covered_s

    def _integral(self, is_rate: bool) -> tuple[float, float]:
        from vflops.results.power.energy import integrate_counter, integrate_gauge, join_energy

        integrate = integrate_counter if is_rate else integrate_gauge
        joined = join_energy(self.recorded, *self.span_s, integrate)
        return joined.covered_s, joined.covered_energy_j


@dataclass(frozen=True)
class _Figure:
    """A figure of the usage, and the series that it is computed from."""

    name: str
    title: str
    wanted: Callable[[Series], bool]
    is_rate: bool = False
    """Whether counters are summed; otherwise gauges are averaged."""
    is_peak: bool = False
    """Whether the value of a device is its largest reading instead of the mean."""
    is_per_job: bool = False
    """Whether the series of two jobs on a host differ although they have the same id."""
    sensor: str = ""
    """The sensor that each accelerator of a host must have; empty if there is none."""

    def value(self, devices: Sequence[_Device], length_s: float) -> float:
        """Return the figure of all devices, in ``length_s`` seconds."""
        if self.is_rate:
            return sum_in_order(device.total(is_rate=True) for device in devices) / length_s
        if self.is_peak:
            return mean([max(value for _, value in device.readings()) for device in devices])
        return mean([device.mean() for device in devices])


class _Host:
    """The telemetry of one host, while its jobs trained."""

    def __init__(self, parts: Sequence[Part], window_s: Span) -> None:
        zero_s = window_s[0]  # as Unix time, microseconds would not be exact
        self._length_s = window_s[1] - zero_s
        self._telemetries = [
            (part.job, (part.span_s[0] - zero_s, part.span_s[1] - zero_s), pair[0])
            for part in parts
            if (pair := node_telemetry(part, zero_s))
        ]

    def accelerators(self) -> set[str]:
        """Return what identifies each accelerator, also if it could not be read at all."""
        found = set()
        for _, _, telemetry in self._telemetries:
            found |= {name for each in telemetry.series() if (name := _accelerator(each))}
            found |= {a.what for a in telemetry.header.absent if _UNREADABLE.fullmatch(a.what)}
        return found

    def why_absent(self, id_end: str) -> str | None:
        """Return why a sensor is absent whose id ends so; None if no reason was recorded."""
        absent = (each for _, _, telemetry in self._telemetries for each in telemetry.header.absent)
        return next(
            (a.reason for a in absent if a.what.endswith(id_end) or _UNREADABLE.fullmatch(a.what)),
            None,
        )

    def devices(self, figure: _Figure) -> list[_Device]:
        """Return the sensors for a figure; jobs that read the same one share it.

        The span of a sensor is that of the jobs that read it, as their telemetry ends with them.
        """
        devices: dict[tuple[object, ...], list[tuple[Span, Telemetry, Series]]] = {}
        for job, span_s, telemetry in self._telemetries:
            for series in filter(figure.wanted, telemetry.series()):
                key = _device_key(series, (job, telemetry.header.node) if figure.is_per_job else ())
                devices.setdefault(key, []).append((span_s, telemetry, series))
        return [
            _Device(
                (
                    max(min(span_s[0] for span_s, _, _ in read), 0.0),
                    min(max(span_s[1] for span_s, _, _ in read), self._length_s),
                ),
                [(telemetry, series) for _, telemetry, series in read],
            )
            for read in devices.values()
        ]


def _device_key(series: Series, reader: tuple[int, ...]) -> tuple[object, ...]:
    """Return what identifies a sensor on its host.

    ``reader`` is the job and its node, if each of them reads its own processes. A job may have
    several nodes with the same host name, such as containers.
    """
    if series.device:
        return series.device, series.id.rpartition(".")[2]
    return *reader, series.id


def _accelerator(series: Series) -> str | None:
    """Return what identifies the accelerator of a series on its host; None for other series."""
    if series.part != "accelerator":
        return None
    return series.device or series.id.partition(".")[0]


def _missing_reason(
    figure: _Figure, hosts: Mapping[str, _Host], devices: Mapping[str, Sequence[_Device]]
) -> str | None:
    """Return why a figure cannot be computed; None if it can."""
    for host, by_host in devices.items():
        required = hosts[host].accelerators() if figure.sensor else set()
        unread = required - {device.accelerator for device in by_host}
        if unread:
            which = "the accelerator"
            if len(required) > 1:
                which = f"{len(unread)} of {len(required)} accelerators"
            why = hosts[host].why_absent(figure.sensor)
            return f"{host}: no {figure.sensor} of {which}" + (f": {why}" if why else "")
    without = [host for host, by_host in devices.items() if not by_host]
    if without:
        among = "" if len(without) == len(devices) else f"{', '.join(without)}: "
        return f"{among}no {figure.title}"
    for host, by_host in devices.items():
        covered = min(device.covered(is_rate=figure.is_rate) for device in by_host)
        if covered < _MIN_COVERED:
            return f"{host}: the readings cover only {percent(covered)} of the training time"
    return None


def _is_received(series: Series) -> bool:
    # What one device sends another receives: count each byte once.
    return series.kind == "counter" and series.id.endswith("received")


def _of_accelerators(quantity: str) -> Callable[[Series], bool]:
    return lambda s: s.part == "accelerator" and s.id.rpartition(".")[2] == quantity


_FIGURES = (
    _Figure(
        "utilisation",
        "accelerator",
        _of_accelerators("utilisation"),
        sensor="utilisation",
    ),
    _Figure(
        "memory_b",
        "accelerator",
        _of_accelerators("memory_used"),
        is_peak=True,
        sensor="memory_used",
    ),
    _Figure("processors", "reading of processors", lambda s: s.id == "cpu.run", is_per_job=True),
    _Figure(
        "run_memory_b",
        "reading of memory",
        lambda s: s.id == "memory.run",
        is_peak=True,
        is_per_job=True,
    ),
    _Figure(
        "within_b_per_s",
        "loopback interface or NVLink",
        lambda s: _is_received(s) and (s.part == "network-within" or ".nvlink_" in s.id),
        is_rate=True,
        sensor="nvlink_received",
    ),
    _Figure(
        "between_b_per_s",
        "network interface",
        lambda s: _is_received(s) and s.part == "network-between",
        is_rate=True,
    ),
)
