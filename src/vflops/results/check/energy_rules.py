"""Rules of telemetry: no gaps in it, and energy that could be."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from vflops.record.files.folder_listing import matching_files
from vflops.record.formats.node import telemetry_file
from vflops.record.formats.system import SystemRecord
from vflops.record.readout.contents import Contents
from vflops.results.check.power_logs import judged_logs
from vflops.results.check.rule import Outcome
from vflops.results.score.figure_text import count
from vflops.units import percent, quantity, seconds

if TYPE_CHECKING:
    from vflops.record.formats.telemetry import Telemetry
    from vflops.results.power.energy import Energy

MOST_GAPS = 0.1
"""Of the time of an attempt, in pieces of several intervals without a sample."""
MOST_APART = 0.25
"""Between power × time and the counter of the same thing."""
LEAST_INTERVALS = 10
"""A shorter time says nothing of the two."""
MOST_OVER_LIMIT = 1.2
"""Of mean power over the limit that is set: regulation overshoots for moments only."""

_NONE = Outcome("not applicable", "no telemetry in this run")


@dataclass(frozen=True)
class _Sampled:
    """What one node sampled over the time of an attempt, by its own clock."""

    path: Path
    telemetry: Telemetry
    span_s: tuple[float, float]


def _sampled(contents: Contents) -> Iterator[_Sampled]:
    for job in (*contents.trained, *contents.workers):
        for place, attempt in zip(job.folders, job.attempts, strict=True):
            span_s, first = attempt.span_s, telemetry_file(place, 0)
            if span_s is None:
                continue
            if first.is_file():
                yield _Sampled(first, contents.telemetry(first), span_s)
            for path in matching_files(place, "telemetry-*.jsonl"):
                found = contents.telemetry(path)
                if len(found) > 1:  # its clock is another: it is judged by its own ends
                    yield _Sampled(path, found, (found.times_s[0], found.times_s[-1]))


def unbroken(contents: Contents) -> Outcome:
    """Samples cover the time of every attempt, but for a small part."""
    files, worst = 0, 0.0
    for each in _sampled(contents):
        if each.telemetry.faults:
            return Outcome("fail", each.telemetry.faults[0], str(each.path))
        gaps_s, length_s = _gaps_s(each), each.span_s[1] - each.span_s[0]
        if gaps_s > MOST_GAPS * length_s:
            words = f"no sample in {seconds(gaps_s)} of {seconds(length_s)}"
            return Outcome("fail", f"{words}, {percent(MOST_GAPS)} at most", str(each.path))
        files, worst = files + 1, max(worst, gaps_s / length_s)
    if not files:
        return _NONE
    return Outcome("pass", f"{count(files, 'file')}, {percent(worst)} without a sample at most")


def _gaps_s(each: _Sampled) -> float:
    """Seconds of the span in pieces without a sample that are too long to be jitter."""
    from vflops.results.power.energy import BRIDGED_INTERVALS

    start_s, end_s = each.span_s
    longest_s = BRIDGED_INTERVALS * each.telemetry.header.interval_s * 1.001
    matching_files = [time_s for time_s in each.telemetry.times_s if start_s < time_s < end_s]
    pieces = (after - before for before, after in pairwise([start_s, *matching_files, end_s]))
    return sum(piece for piece in pieces if piece > longest_s)


def plausible(contents: Contents) -> Outcome:
    """Power × time agrees with the counter, is more than nothing, and below the limit."""
    most_w = _limit_w(contents)
    meters, compared, absent = 0, 0, set[str]()
    for each in _sampled(contents):
        absent |= {one.what for one in each.telemetry.header.absent}
        for name, readings in _meters(each).items():
            powers = {
                kind: w for kind, one in readings.items() if (w := one.mean_power_w) is not None
            }
            if not powers:
                absent.add(name)
                continue
            fault = _fault(powers, most_w if name.startswith("gpu") else None)
            if fault:
                return Outcome("fail", f"{name}: {fault}", str(each.path))
            meters, compared = meters + 1, compared + (len(powers) > 1)
    imported = 0
    for path, words in judged_logs(contents):
        if words is not None:
            return Outcome("fail", words, str(path))
        imported += 1
    unread = f"; not measured: {', '.join(sorted(absent))}" if absent else ""
    meters += imported
    if not meters:
        return Outcome("not applicable", f"no power was measured{unread}")
    pairs = f", {compared} by power and counter alike" if compared else ""
    return Outcome("pass", f"{count(meters, 'reading')} of energy{pairs}{unread}")


def _meters(each: _Sampled) -> dict[str, dict[str, Energy]]:
    """Of every thing with an energy its kinds of readings, over long enough a time."""
    from vflops.results.power.energy import energy
    from vflops.results.power.run_power import meter

    found: dict[str, dict[str, Energy]] = {}
    least_s = LEAST_INTERVALS * each.telemetry.header.interval_s
    if each.span_s[1] - each.span_s[0] < least_s:
        return found
    for series in each.telemetry.header.series:
        name = meter(series)
        if name is not None:
            one = energy(each.telemetry, series, *each.span_s)
            found.setdefault(name.strip(), {})[series.kind] = one
    return found


def _fault(powers: dict[str, float], limit_w: float | None) -> str | None:
    for kind, power_w in powers.items():
        if power_w <= 0:
            return f"its {kind} says {quantity(power_w, 'W')}: a sensor that reads nothing"
        if limit_w is not None and power_w > MOST_OVER_LIMIT * limit_w:
            return f"{quantity(power_w, 'W')} on average, and its limit is {quantity(limit_w, 'W')}"
    if len(powers) < 2:
        return None
    low, high = min(powers.values()), max(powers.values())
    if high - low > MOST_APART * high:
        told = ", ".join(f"{kind} {quantity(w, 'W')}" for kind, w in sorted(powers.items()))
        return f"power × time and the counter are apart: {told}"
    return None


def _limit_w(contents: Contents) -> float | None:
    """The highest power limit of an accelerator of the machine that was described."""
    if not contents.folder.system_file.is_file():
        return None
    record = contents.read(SystemRecord, contents.folder.system_file)
    facts = record.matching("hardware", "accelerator * power limit")
    return max((float(f.value) for f in facts if isinstance(f.value, int | float)), default=None)
