"""The rules on background load: CPU time that a run did not get while it measured or trained.

Other processes of the machine use it, or the host of a virtual machine takes it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING

from vflops.metrics.summation import sum_in_order
from vflops.record.formats.measurement import Loaded
from vflops.record.log.events import Event
from vflops.record.readout.contents import Contents
from vflops.record.readout.timeline import Part, Timeline, concurrent_parts
from vflops.results.check.locations import run_event_location
from vflops.results.check.rule import Outcome
from vflops.results.score.node_power import node_telemetry
from vflops.text import printable
from vflops.units import percent

if TYPE_CHECKING:
    from vflops.record.formats.telemetry import ProgramShare, Telemetry

MAX_LOAD = 0.1
"""The largest share of the CPUs that other processes may use."""
MAX_NAMES = 3
"""The largest number of programs that a message names."""
MIN_TRAINING_S, MIN_READINGS = 60.0, 10
"""Jobs that are shorter or have fewer readings are not checked, because start-up is noisy."""

_CERTAIN_LOAD = 3 * MAX_LOAD
"""A larger share slows down even a short training, whatever the noise of its start."""

_BUSY, _OTHERS, _STOLEN = "cpu.busy", "cpu.others", "cpu.stolen"


def check_background_load(contents: Contents) -> Outcome:
    """Fail if other processes used too much CPU time during measurements or training."""
    shares = []
    if contents.measurements:
        loads = _measurement_loads(contents)
        if not loads:
            reason = "the log does not record the load by other processes"
            return Outcome("cannot tell", reason, run_event_location(contents, "load"))
        busiest = max(loads, key=lambda event: event.payload(Loaded).others_share)
        load = busiest.payload(Loaded)
        when = _while_measured(load)
        if load.others_share > MAX_LOAD:
            text = _load_text(load.others_share, when, load.programs)
            return Outcome("fail", text, busiest.source)
        shares.append((load.others_share, when))
    trained = [(share, part) for part, share in _training_loads(contents)]
    if trained:
        share, part = max(trained, key=lambda pair: pair[0])
        when = f"while job {part.job} trained"
        if share > MAX_LOAD:
            text = _load_text(share, when, _programs(contents, part))
            return Outcome("fail", text, str(part.telemetry))
        shares.append((share, when))
    if not shares:
        unjudged = unjudged_load(contents) or "the load was not recorded"
        return Outcome("not applicable", f"no ceiling was measured, and {unjudged}")
    return Outcome("pass", _load_text(*max(shares)))


def check_stolen_time(contents: Contents) -> Outcome:
    """Fail if the host of a virtual machine took too much of its CPU time.

    A short training is judged as well: the noise of its start is not the host's.
    """
    shares = [
        (share, _while_measured(load), event.source)
        for event in _measurement_loads(contents)
        if (share := (load := event.payload(Loaded)).stolen_share) is not None
    ]
    most_readings = 0
    for parts in contents.once(_timeline).parts.values():
        for part in parts:
            values = _percentages(contents, part, part, _STOLEN)
            most_readings = max(most_readings, len(values))
            if len(values) >= MIN_READINGS:
                when = f"while job {part.job} trained"
                shares.append((_mean(values), when, str(part.telemetry)))
    if not shares:
        reason = (
            f"has too few readings ({most_readings} of {MIN_READINGS})"
            if most_readings
            else "was not recorded"
        )
        return Outcome("not applicable", f"the CPU time that a host took {reason}")
    share, when, where = max(shares)
    text = (
        f"the host of this virtual machine took {percent(share, digits=1)} of the CPU time {when}"
        if share > 0
        else "no CPU time was taken by the host of a virtual machine"
    )
    text += f"; at most {percent(MAX_LOAD, digits=0)} is allowed"
    return Outcome("fail", text, where) if share > MAX_LOAD else Outcome("pass", text)


def unjudged_load(contents: Contents) -> str | None:
    """Return a remark on a training that is too short for the rule but was disturbed for sure."""
    short = [(share, part) for part, share in _training_loads(contents, short=True)]
    if not short:
        return None
    share, part = max(short, key=lambda pair: pair[0])
    if share <= _CERTAIN_LOAD:
        return None
    used = used_by_others(share, _programs(contents, part))
    return f"{used} while job {part.job} trained, too briefly for the rule quiet"


def busiest_training(contents: Contents, jobs: Collection[int]) -> str | None:
    """Return what other programs used during the most disturbed training of ``jobs``.

    Trainings that are too short for the rule count as well. None if the load was not recorded.
    """
    loads = [
        (share, part)
        for short in (False, True)
        for part, share in _training_loads(contents, short=short)
        if part.job in jobs
    ]
    if not loads:
        return None
    share, part = max(loads, key=lambda pair: pair[0])
    return f"{used_by_others(share, _programs(contents, part))} while job {part.job} trained"


def _programs(contents: Contents, part: Part) -> Sequence[ProgramShare]:
    """Return the busiest programs outside of the run while a part of a job was recorded."""
    return contents.telemetry(part.telemetry).programs if part.telemetry else ()


def _load_text(share: float, when: str, programs: Sequence[ProgramShare] = ()) -> str:
    used = used_by_others(share, programs)
    return f"{used} {when}; at most {percent(MAX_LOAD, digits=0)} is allowed"


def used_by_others(share: float, programs: Sequence[ProgramShare]) -> str:
    """Return how much of the CPUs other programs used, with the names of the busiest."""
    used = percent(share, digits=0 if share >= 2 * MAX_LOAD else 1)
    names = busiest_programs(share, programs)
    return f"other programs used {used} of the CPUs" + (f" ({names})" if names else "")


def busiest_programs(share: float, programs: Sequence[ProgramShare]) -> str:
    """Return the names of the busiest programs with their shares; empty if there are none."""
    total = sum_in_order(program.share for program in programs)
    scale = min(share / total, 1.0) if total else 1.0  # programs are sampled at other times
    return ", ".join(
        f"{printable(program.name)} {percent(scale * program.share, digits=0)}"
        for program in programs[:MAX_NAMES]
    )


def _while_measured(load: Loaded) -> str:
    return "while ceilings were measured" + (f" on {load.node}" if load.node else "")


def _measurement_loads(contents: Contents) -> Sequence[Event]:
    """Return the last load event of each attempt and node that measured.

    A resumed attempt records again, with the load, what cannot be measured; it measures nothing.
    """
    last: dict[tuple[int, str | None], Event] = {}
    measured: set[tuple[int, str | None]] = set()
    for attempt, log in enumerate(contents.history.logs):
        for event in log.events:
            if event.kind == "load":
                last[attempt, event.payload(Loaded).node] = event
            elif event.kind == "measurement" and event.data.get("value") is not None:
                measured.add((attempt, event.data.get("node")))
    return [event for key, event in last.items() if key in measured] or list(last.values())


def _training_loads(contents: Contents, *, short: bool = False) -> Iterator[tuple[Part, float]]:
    """Yield the CPU share of other processes per attempt and node, given enough readings.

    Attempts are those that are long enough for the rule, or the short ones.
    """
    for parts in contents.once(_timeline).parts.values():
        for part, siblings in zip(parts, concurrent_parts(parts), strict=True):
            is_short = part.span_s[1] - part.span_s[0] < MIN_TRAINING_S
            used = _mean_share(contents, part, part, _OTHERS) if is_short is short else None
            if used is None:
                continue
            if used > MAX_LOAD:  # other jobs of this run also count as other processes
                used -= _sibling_share(contents, part, siblings)
            yield part, max(used, 0.0)


def _timeline(contents: Contents) -> Timeline:
    return Timeline((*contents.training_jobs, *contents.workers))


def _sibling_share(contents: Contents, part: Part, siblings: Sequence[Part]) -> float:
    """Return the CPU share of the run's other jobs on the same node at the same time."""
    total = 0.0
    for sibling in siblings:
        busy, others = (_mean_share(contents, sibling, part, name, 1) for name in (_BUSY, _OTHERS))
        start_s, end_s = _overlap(sibling, part)
        if busy is not None and others is not None:
            length_s = part.span_s[1] - part.span_s[0]
            total += (busy - others) * (end_s - start_s) / length_s
    return total


def _mean_share(
    contents: Contents, part: Part, during: Part, series: str, min_readings: int = MIN_READINGS
) -> float | None:
    """Return the mean share that ``part`` recorded while ``during`` trained.

    None if there are fewer than ``min_readings``.
    """
    values = _percentages(contents, part, during, series)
    return _mean(values) if len(values) >= min_readings else None


def _mean(percentages: Sequence[float]) -> float:
    return sum_in_order(percentages) / len(percentages) / 100


def _percentages(contents: Contents, part: Part, during: Part, series: str) -> list[float]:
    """Return the shares that ``part`` recorded while ``during`` trained, in percent."""
    start_s, end_s = _overlap(part, during)
    if part.telemetry is None or start_s >= end_s:
        return []
    if all(column.id != series for column in contents.telemetry(part.telemetry).header.series):
        return []
    zero_s = during.span_s[0]
    sampled = node_telemetry(part, zero_s, contents.telemetry)
    return _readings(sampled[0], series, start_s - zero_s, end_s - zero_s) if sampled else []


def _readings(telemetry: Telemetry, series: str, start_s: float, end_s: float) -> list[float]:
    """Return the readings of a span. Each covers the time since the previous reading."""
    column = zip(telemetry.times_s, telemetry.column(series), strict=True)
    return [value for time_s, value in column if start_s < time_s <= end_s and value is not None]


def _overlap(first: Part, second: Part) -> tuple[float, float]:
    """Return the time that both parts cover."""
    return max(first.span_s[0], second.span_s[0]), min(first.span_s[1], second.span_s[1])
