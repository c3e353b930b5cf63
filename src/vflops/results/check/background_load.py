"""The rule of quiet: what else the machine did while ceilings were measured and jobs trained."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from vflops.record.log.events import Event, Loaded
from vflops.record.readout.contents import Contents
from vflops.record.readout.timeline import Part, Timeline
from vflops.results.check.locations import logged
from vflops.results.check.rule import Outcome
from vflops.results.score.node_power import sampled_by
from vflops.units import percent

if TYPE_CHECKING:
    from vflops.record.formats.telemetry import Telemetry

MOST_LOAD = 0.1
"""Of the CPUs, by others, while ceilings are measured and while a job trains."""
LEAST_S, LEAST_READINGS = 60.0, 10
"""Of a training; the start of a shorter one is noise enough. Ceilings are measured beside it."""

_BUSY, _OTHERS = "cpu.busy", "cpu.others"


def quiet(contents: Contents) -> Outcome:
    """Little else ran while ceilings were measured, and while jobs trained."""
    told = []
    if contents.measurements:
        busiest = _at_ceilings(contents)
        if busiest is None:
            words = "the log does not say what else ran"
            return Outcome("cannot tell", words, logged(contents, "load"))
        share = busiest.payload(Loaded).others_share
        if share > MOST_LOAD:
            return Outcome("fail", _words(share, "while ceilings were measured"), busiest.source)
        told.append((share, "while ceilings were measured"))
    trained = [(share, part) for part, share in _at_trainings(contents)]
    if trained:
        share, part = max(trained, key=lambda each: each[0])
        when = f"while job {part.job} trained"
        if share > MOST_LOAD:
            return Outcome("fail", _words(share, when), str(part.telemetry))
        told.append((share, when))
    if not told:
        return Outcome("not applicable", "neither a ceiling nor readings of what else ran")
    return Outcome("pass", _words(*max(told)))


def _words(share: float, when: str) -> str:
    used = f"others used {percent(share)} of the CPUs {when}"
    return f"{used}, at most {percent(MOST_LOAD)} is quiet"


def _at_ceilings(contents: Contents) -> Event | None:
    """The busiest attempt at measuring, by what it noted last."""
    attempts = [[e for e in log.events if e.kind == "load"] for log in contents.history.logs]
    last = [loads[-1] for loads in attempts if loads]
    return max(last, key=lambda event: event.payload(Loaded).others_share, default=None)


def _at_trainings(contents: Contents) -> Iterator[tuple[Part, float]]:
    """The share of others, of every node of every attempt that says it for long enough."""
    for parts in Timeline((*contents.trained, *contents.workers)).parts.values():
        for part in parts:
            long = part.span_s[1] - part.span_s[0] >= LEAST_S
            used = _used(contents, part, part, _OTHERS) if long else None
            if used is None:
                continue
            if used > MOST_LOAD:  # jobs side by side: what one has for others may be our own
                used -= _of_siblings(contents, part, parts)
            yield part, max(used, 0.0)


def _of_siblings(contents: Contents, part: Part, parts: Sequence[Part]) -> float:
    """What other jobs of the run used on that node meanwhile."""
    found = 0.0
    for each in parts:
        if each.job != part.job:
            busy, others = (_used(contents, each, part, name, 1) for name in (_BUSY, _OTHERS))
            start_s, end_s = _shared(each, part)
            if busy is not None and others is not None:
                length_s = part.span_s[1] - part.span_s[0]
                found += (busy - others) * (end_s - start_s) / length_s
    return found


def _used(
    contents: Contents, part: Part, of: Part, series: str, least: int = LEAST_READINGS
) -> float | None:
    """The mean of a percentage that a part has read while ``of`` trained; None without enough."""
    start_s, end_s = _shared(part, of)
    if part.telemetry is None or start_s >= end_s:
        return None
    if all(each.id != series for each in contents.telemetry(part.telemetry).header.series):
        return None
    zero_s = of.span_s[0]
    found = sampled_by(part, zero_s, contents.telemetry)
    values = _within(found[0], series, start_s - zero_s, end_s - zero_s) if found else []
    return sum(values) / len(values) / 100 if len(values) >= least else None


def _within(telemetry: Telemetry, series: str, start_s: float, end_s: float) -> list[float]:
    """Readings of a span; each is of the time since the one before."""
    column = zip(telemetry.times_s, telemetry.column(series), strict=True)
    return [value for at_s, value in column if start_s < at_s <= end_s and value is not None]


def _shared(one: Part, other: Part) -> tuple[float, float]:
    """The time of both."""
    return max(one.span_s[0], other.span_s[0]), min(one.span_s[1], other.span_s[1])
