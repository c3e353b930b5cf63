"""Energy of a series over a span of time, from an energy counter or from power readings.

Readings are not extrapolated: time without readings is reported as a gap.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from vflops.metrics.summation import sum_in_order
from vflops.record.files.document import Data
from vflops.record.formats.telemetry import Series, Telemetry

BRIDGED_INTERVALS = 5
"""Power is not interpolated between readings more than this many intervals apart."""
_MAX_W = 2000.0
"""The maximum power of a processor package with its memory.

It distinguishes a counter that wrapped around from one that was reset, and limits the length of a
gap in which a counter could wrap around unnoticed."""


class Gap(Data):
    """A span of time that no reading covers."""

    series: str
    start_s: float
    end_s: float
    reason: str


@dataclass(frozen=True)
class Energy:
    """The energy of one series over a span of time."""

    series: Series
    span_s: float
    covered_s: float
    covered_energy_j: float
    """The energy of the covered time only."""
    gaps: tuple[Gap, ...]

    @property
    def energy_j(self) -> float | None:
        """Energy of the covered time; None if no time is covered."""
        return self.covered_energy_j if self.covered_s > 0 else None

    @property
    def mean_power_w(self) -> float | None:
        """Mean power over the covered time; None if no time is covered."""
        return self.covered_energy_j / self.covered_s if self.covered_s > 0 else None

    @property
    def covered(self) -> float:
        """The share of the span that readings cover."""
        # The sum of many pieces may differ from the span in the last digits.
        share = self.covered_s / self.span_s
        return 1.0 if not self.gaps else min(share, 1.0)


_Powers = Callable[[float, float, float, bool], tuple[float, float] | str]
"""Power at the start and at the end of the time between two consecutive readings.

The arguments are the length of this time, both readings, and whether all of it is in the span. The
result is the reason if the power is not known.
"""


def energy(telemetry: Telemetry, series: Series, start_s: float, end_s: float) -> Energy:
    """Return the energy of ``series`` from ``start_s`` to ``end_s`` by the telemetry's clock.

    A counter in J is differenced; a gauge in W is integrated linearly between readings.
    """
    key = series.id, start_s, end_s
    if key not in telemetry.energies:
        telemetry.energies[key] = _energy(telemetry, series, start_s, end_s)
    known: Energy = telemetry.energies[key]
    return known


def _energy(telemetry: Telemetry, series: Series, start_s: float, end_s: float) -> Energy:
    if (series.kind, series.unit) == ("counter", "J"):
        powers = _counter_powers(telemetry.header.interval_s, series.wraps_at)
    elif (series.kind, series.unit) == ("gauge", "W"):
        powers = _gauge_powers(telemetry.header.interval_s)
    else:
        raise ValueError(
            f"{series.id} is a {series.kind} in {series.unit}, not a counter in J or a gauge in W"
        )
    return _integral(telemetry, series, start_s, end_s, powers)


def integrate_gauge(telemetry: Telemetry, series: Series, start_s: float, end_s: float) -> Energy:
    """Return the integral of a gauge of any unit; ``mean_power_w`` is then the mean reading."""
    powers = _gauge_powers(telemetry.header.interval_s)
    return _integral(telemetry, series, start_s, end_s, powers)


def integrate_counter(telemetry: Telemetry, series: Series, start_s: float, end_s: float) -> Energy:
    """Return the increase of a counter of any unit; ``mean_power_w`` is then its mean rate."""
    powers = _counter_powers(telemetry.header.interval_s, series.wraps_at)
    return _integral(telemetry, series, start_s, end_s, powers)


Recorded = Sequence[tuple[Telemetry, Series]]
"""Readings of one device in one or more telemetry files that use the same clock."""


def join_energy(
    recorded: Recorded,
    start_s: float,
    end_s: float,
    integrate: Callable[[Telemetry, Series, float, float], Energy] = energy,
) -> Energy:
    """Return the energy of one device, filling gaps of the first file from the following ones."""
    (telemetry, series), *others = recorded
    first = integrate(telemetry, series, start_s, end_s)
    if not others:
        return first
    filled = [join_energy(others, gap.start_s, gap.end_s, integrate) for gap in first.gaps]
    return Energy(
        series,
        first.span_s,
        first.covered_s + sum_in_order(part.covered_s for part in filled),
        first.covered_energy_j + sum_in_order(part.covered_energy_j for part in filled),
        tuple(gap for part in filled for gap in part.gaps),
    )


def mean_power_w(
    telemetry: Telemetry, series: Series, start_s: float, end_s: float
) -> float | None:
    """Return the mean power of ``series`` over the covered part of a span, if any."""
    return energy(telemetry, series, start_s, end_s).mean_power_w


def _gauge_powers(interval_s: float) -> _Powers:
    longest_s = _max_bridged_s(interval_s)

    def powers(
        length_s: float, first: float, last: float, is_whole: bool
    ) -> tuple[float, float] | str:
        return "no reading of power" if length_s > longest_s else (first, last)

    return powers


def _counter_powers(interval_s: float, wraps_at_j: float | None) -> _Powers:
    def powers(
        length_s: float, first: float, last: float, is_whole: bool
    ) -> tuple[float, float] | str:
        if not is_whole and length_s > _max_bridged_s(interval_s):
            return "no reading of energy near the edge of the span"
        if wraps_at_j is not None and length_s > wraps_at_j / _MAX_W:
            return "no reading of energy for so long that the counter may have come around unseen"
        energy_j = last - first
        if energy_j < 0 and wraps_at_j is not None:
            energy_j += wraps_at_j
            if not 0 <= energy_j <= _MAX_W * max(length_s, interval_s):
                return "the counter was reset"
        if energy_j < 0:
            return "the counter was reset"
        power_w = energy_j / length_s
        return power_w, power_w

    return powers


def _max_bridged_s(interval_s: float) -> float:
    # Slightly more, because intervals jitter and 5 × 0.1 may not be 0.5 in floating point.
    return BRIDGED_INTERVALS * interval_s * 1.001


def _integral(
    telemetry: Telemetry, series: Series, start_s: float, end_s: float, powers: _Powers
) -> Energy:
    if not start_s < end_s:
        raise ValueError(f"the span is {start_s!r} to {end_s!r}: expected an end after its start")
    column = zip(telemetry.times_s, telemetry.column(series.id), strict=True)
    readings = [(time_s, value) for time_s, value in column if value is not None]
    covered_s = energy_j = 0.0
    gaps: list[Gap] = []

    def gap(from_s: float, to_s: float, reason: str) -> None:
        if gaps and gaps[-1].end_s == from_s and gaps[-1].reason == reason:
            from_s = gaps.pop().start_s
        gaps.append(Gap(series=series.id, start_s=from_s, end_s=to_s, reason=reason))

    first_s, last_s = (readings[0][0], readings[-1][0]) if readings else (end_s, end_s)
    if first_s > start_s:
        gap(start_s, min(first_s, end_s), "before the first reading")
    for (a_s, a), (b_s, b) in pairwise(readings):
        is_whole = start_s <= a_s and b_s <= end_s
        from_s, to_s = (a_s, b_s) if is_whole else (max(a_s, start_s), min(b_s, end_s))
        if from_s >= to_s:
            continue
        ends = powers(b_s - a_s, a, b, is_whole)
        if isinstance(ends, str):
            gap(from_s, to_s, ends)
        else:  # the area under the line between the two readings
            first_w, last_w = ends
            middle_w = first_w + (last_w - first_w) / (b_s - a_s) * ((from_s + to_s) / 2 - a_s)
            covered_s += to_s - from_s
            energy_j += middle_w * (to_s - from_s)
    if last_s < end_s:
        gap(max(last_s, start_s), end_s, "after the last reading")
    return Energy(series, end_s - start_s, covered_s, energy_j, tuple(gaps))
