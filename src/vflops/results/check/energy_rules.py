"""Rules for telemetry: it has no long gaps, and the energy is plausible.

Power has limits in both directions. A device that trains draws at least what it draws when idle:
for known accelerators half of that, for processors a watt, which a busy processor of a telephone
exceeds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from vflops.metrics.summation import sum_in_order
from vflops.record.files.folder_listing import matching_files
from vflops.record.files.read_once import is_file
from vflops.record.formats.node import telemetry_file
from vflops.record.formats.system import SystemRecord
from vflops.record.readout.contents import Contents
from vflops.results.check.power_logs import device_floors_w, power_log_faults
from vflops.results.check.rule import Outcome
from vflops.results.data_sheets import data_sheet
from vflops.units import count, percent, quantity, seconds

if TYPE_CHECKING:
    from vflops.record.formats.telemetry import Part, Telemetry
    from vflops.results.power.energy import Energy

MAX_GAP_SHARE = 0.1
"""The largest share of an attempt's time that may lie in gaps of several sampling intervals."""
MAX_DIFFERENCE = 0.25
"""The largest relative difference between power × time and the energy counter."""
MIN_INTERVALS = 10
"""The minimum length of a span, in sampling intervals, for comparing power and counter."""
MAX_OVER_LIMIT = 1.2
"""The largest ratio of mean power to the power limit, which devices exceed only briefly."""

_NONE = Outcome("not applicable", "no telemetry in this run")


@dataclass(frozen=True)
class _Meter:
    """The readings of one meter, by their kind: power, and a counter of energy."""

    part: Part
    readings: dict[str, Energy]


@dataclass(frozen=True)
class _Sampled:
    """The samples of one node during an attempt, with times by that node's clock."""

    path: Path
    telemetry: Telemetry
    span_s: tuple[float, float]
    floors_w: dict[Part, float]
    """The least mean power of a device, by its part of the machine."""


def _sampled(contents: Contents) -> Iterator[_Sampled]:
    for job in (*contents.training_jobs, *contents.workers):
        for folder, attempt in zip(job.folders, job.attempts, strict=True):
            span_s, first = attempt.span_s, telemetry_file(folder, 0)
            floors_w = device_floors_w(attempt)
            if span_s is None:
                continue
            if is_file(first):
                yield _Sampled(first, contents.telemetry(first), span_s, floors_w)
            for path in matching_files(folder, "telemetry-*.jsonl"):
                telemetry = contents.telemetry(path)
                if len(telemetry) > 1:  # it has its own clock, so its samples define the span
                    span_s = (telemetry.times_s[0], telemetry.times_s[-1])
                    yield _Sampled(path, telemetry, span_s, floors_w)


def check_gaps(contents: Contents) -> Outcome:
    """Fail if samples are missing for more than a small part of an attempt."""
    files, worst = 0, 0.0
    for sampled in _sampled(contents):
        if sampled.telemetry.faults:
            return Outcome("fail", sampled.telemetry.faults[0], str(sampled.path))
        gaps_s, length_s = _gaps_s(sampled), sampled.span_s[1] - sampled.span_s[0]
        if gaps_s > MAX_GAP_SHARE * length_s:
            evidence = f"the telemetry has no samples for {seconds(gaps_s)} of {seconds(length_s)}"
            limit = f"at most {percent(MAX_GAP_SHARE)} is allowed"
            return Outcome("fail", f"{evidence}; {limit}", str(sampled.path))
        files, worst = files + 1, max(worst, gaps_s / length_s)
    if not files:
        return _NONE
    return Outcome("pass", f"{count(files, 'file')}, at most {percent(worst)} without samples")


def _gaps_s(sampled: _Sampled) -> float:
    """Return the seconds of the span that lie in gaps too long to be jitter."""
    from vflops.results.power.energy import BRIDGED_INTERVALS

    start_s, end_s = sampled.span_s
    longest_s = BRIDGED_INTERVALS * sampled.telemetry.header.interval_s * 1.001
    inside = [time_s for time_s in sampled.telemetry.times_s if start_s < time_s < end_s]
    gaps_s = (after - before for before, after in pairwise([start_s, *inside, end_s]))
    return sum_in_order(gap_s for gap_s in gaps_s if gap_s > longest_s)


def check_energy(contents: Contents) -> Outcome:
    """Fail unless power is positive, below the limit, and agrees with the energy counter."""
    limit_w = _limit_w(contents)
    meters, compared, absent = 0, 0, set[str]()
    for sampled in _sampled(contents):
        absent |= {sensor.what for sensor in sampled.telemetry.header.absent}
        for name, meter in _meters(sampled).items():
            powers = {
                kind: w
                for kind, reading in meter.readings.items()
                if (w := reading.mean_power_w) is not None
            }
            if not powers:
                absent.add(name)
                continue
            fault = _fault(powers, limit_w if meter.part == "accelerator" else None)
            is_memory = meter.part == "processor" and " " in name  # a meter of its own
            fault = fault or _floor_fault(
                powers, 0.0 if is_memory else sampled.floors_w.get(meter.part, 0.0)
            )
            if fault:
                return Outcome("fail", f"{name}: {fault}", str(sampled.path))
            meters, compared = meters + 1, compared + (len(powers) > 1)
    imported = 0
    for path, log_fault in power_log_faults(contents):
        if log_fault is not None:
            return Outcome("fail", log_fault, str(path))
        imported += 1
    not_measured = f"; not measured: {', '.join(sorted(absent))}" if absent else ""
    meters += imported
    if not meters:
        return Outcome("not applicable", f"no power was measured{not_measured}")
    pairs = f", {compared} both as power and by a counter" if compared else ""
    return Outcome("pass", f"{count(meters, 'reading')} of energy{pairs}{not_measured}")


def _meters(sampled: _Sampled) -> dict[str, _Meter]:
    """Return the meters by name; none if the span is too short."""
    from vflops.results.power.energy import energy
    from vflops.results.power.run_power import meter_name

    meters: dict[str, _Meter] = {}
    min_s = MIN_INTERVALS * sampled.telemetry.header.interval_s
    if sampled.span_s[1] - sampled.span_s[0] < min_s:
        return meters
    for series in sampled.telemetry.header.series:
        name = meter_name(series)
        if name is not None:
            reading = energy(sampled.telemetry, series, *sampled.span_s)
            meter = meters.setdefault(name.strip(), _Meter(series.part, {}))
            meter.readings[series.kind] = reading
    return meters


def _fault(powers: dict[str, float], limit_w: float | None) -> str | None:
    for kind, power_w in powers.items():
        if power_w <= 0:
            return f"its {kind} reads {quantity(power_w, 'W')}, so the sensor does not work"
        if limit_w is not None and power_w > MAX_OVER_LIMIT * limit_w:
            return f"{quantity(power_w, 'W')} on average, but its limit is {quantity(limit_w, 'W')}"
    if len(powers) < 2:
        return None
    low, high = min(powers.values()), max(powers.values())
    if high - low > MAX_DIFFERENCE * high:
        values = ", ".join(f"{kind} {quantity(w, 'W')}" for kind, w in sorted(powers.items()))
        return f"power × time and the counter differ: {values}"
    return None


def _floor_fault(powers: dict[str, float], floor_w: float) -> str | None:
    """Return how the power of a device is less than it draws when idle."""
    power_w = min(powers.values())
    if power_w >= floor_w:
        return None
    least = f"such a device draws at least {quantity(floor_w, 'W')}"
    return f"{quantity(power_w, 'W')} on average while it trained, but {least}"


def _limit_w(contents: Contents) -> float | None:
    """Return the highest power limit of the described accelerators, or that of a data sheet."""
    records = [node.system for node in contents.measured_nodes]
    if is_file(contents.folder.system_file):
        records.append(contents.read(SystemRecord, contents.folder.system_file))
    limits, names = (
        [fact.value for record in records for fact in record.matching("hardware", pattern)]
        for pattern in ("accelerator * power limit", "accelerator * model")
    )
    known_w = [float(value) for value in limits if isinstance(value, int | float)]
    sheets = [data_sheet(name) for name in names if isinstance(name, str)]
    stated_w = [sheet.tdp_w for sheet in sheets if sheet and sheet.tdp_w is not None]
    return max(known_w or stated_w, default=None)
