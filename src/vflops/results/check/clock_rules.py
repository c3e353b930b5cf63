"""The rule for clocks: times in the logs are in order and agree with each other.

Durations come from monotonic clocks. A wall clock that was set while a log was written is noted; it
is a fault only where times of a run of an earlier version, or of nodes whose monotonic clocks were
not compared, depend on it. In a log, a machine that stood still looks like one whose wall clock was
set ahead: another clock of the run has to tell which it was.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from math import inf

from vflops.record.formats.node import Clock, NodeRecord
from vflops.record.log.events import Event, Log
from vflops.record.readout.contents import Contents
from vflops.results.check.locations import RUN_LOG
from vflops.results.check.rule import Outcome
from vflops.units import count, seconds

MAX_CLOCK_STEP_S = 60.0
"""The largest step of the wall clock while a log is written, as NTP makes at boot."""
MAX_DRIFT = 1e-3
"""The largest drift between two clocks of a machine, as a share: NTP slews by half of this."""
_MAX_STEPS = 2
"""More steps of the wall clock in one log are not those of a clock that was set and corrected."""


@dataclass(frozen=True)
class _Attempt:
    """A log, with what is known about the clocks of the node that wrote it."""

    log: Log
    node: Clock | None

    @property
    def reference_clock(self) -> str | None:
        """The id of the monotonic clock that ``reference_s`` returns the time of."""
        compared = self.node is not None and self.node.monotonic_offset_s is not None
        return self.node.reference_clock if self.node and compared else None

    def reference_s(self, event: Event) -> float:
        """Return the time of an event by the monotonic clock of the reference host."""
        return event.time_s - ((self.node.monotonic_offset_s if self.node else None) or 0.0)

    def utc_s(self, event: Event) -> float:
        """Return the time of an event by the wall clock of the reference host."""
        return event.utc_s - ((self.node.offset_s if self.node else None) or 0.0)

    @cached_property
    def _ahead_s(self) -> list[float]:
        """How far the wall clock is ahead of the monotonic clock at each event."""
        return [event.utc_s - event.time_s for event in self.log.events]

    @cached_property
    def steps(self) -> list[tuple[Event, float]]:
        """The first event after each step of the wall clock, and the seconds of the step."""
        found = []
        pairs = zip(pairwise(self.log.events), pairwise(self._ahead_s), strict=True)
        for (before, after), (before_s, after_s) in pairs:
            allowed_s = MAX_CLOCK_STEP_S + MAX_DRIFT * (after.time_s - before.time_s)
            if abs(after_s - before_s) > allowed_s:
                found.append((after, after_s - before_s))
        return found

    @property
    def steps_ahead(self) -> list[tuple[Event, float]]:
        """The steps that may also be times for which the machine stood still."""
        return [(event, step_s) for event, step_s in self.steps if step_s > 0]

    def set_ahead_s(self, start_s: float, end_s: float) -> float | None:
        """Return by how much the wall clock was set ahead in an interval of the monotonic clock.

        None if the log does not have events both before and after the interval.
        """
        ahead_s = list(zip(self.log.events, self._ahead_s, strict=True))
        before_s = [each_s for event, each_s in ahead_s if event.time_s <= start_s]
        after_s = [each_s for event, each_s in ahead_s if event.time_s >= end_s]
        return after_s[0] - before_s[-1] if before_s and after_s else None

    def before(self, event: Event) -> Event:
        """Return the event before one of this log that is not the first."""
        return self.log.events[self.log.events.index(event) - 1]

    def disagreement(self, own: bool) -> tuple[Event, str] | None:
        """Return an event whose wall clock cannot be right; ``own`` is the run's own log."""
        known = self.log.clock is not None and (own or self.reference_clock is not None)
        accepted = self.steps if known and len(self.steps) <= _MAX_STEPS else []
        steps_s = {event.source: step_s for event, step_s in accepted}
        stepped_s = 0.0
        for event, ahead_s in zip(self.log.events, self._ahead_s, strict=True):
            stepped_s += steps_s.get(event.source, 0.0)
            apart_s = ahead_s - self._ahead_s[0] - stepped_s
            allowed_s = MAX_CLOCK_STEP_S + MAX_DRIFT * (event.time_s - self.log.events[0].time_s)
            if abs(apart_s) > allowed_s:
                return event, f"wall clock and monotonic clock are {abs(apart_s):.6g} s apart"
        return None


_Attempts = dict[int, list[_Attempt]]
"""The attempts at each job; job 0 is the run itself."""


def check_clocks(contents: Contents) -> Outcome:
    """Fail if a clock went back, or wall clock and monotonic clock disagree."""
    lines = 0
    for log in contents.history.logs:
        for before, after in pairwise(log.events):
            if after.time_s < before.time_s:
                back_s = before.time_s - after.time_s
                return Outcome("fail", f"the clock went back by {back_s:g} s", after.source)
        for event in log.events:
            if event.suspended_s is not None:
                suspended = f"the machine was suspended for {seconds(event.suspended_s)}"
                return Outcome("fail", suspended, event.source)
        lines += len(log.events)
    if not lines:
        return Outcome("cannot tell", "the run has no log", RUN_LOG)
    attempts = _attempts(contents)
    for fault in _faults(attempts):
        return Outcome("fail", fault[1], fault[0].source)
    for doubt in _standstills(attempts):
        return doubt
    steps = [step for logs in attempts.values() for attempt in logs for step in attempt.steps]
    text = f"{count(lines, 'line')}, none earlier than the previous one"
    if not steps:
        return Outcome("pass", text)
    event, step_s = max(steps, key=lambda step: abs(step[1]))
    direction = "ahead" if step_s > 0 else "back"
    note = f"a wall clock was set {direction} by {seconds(abs(step_s))} during the run"
    return Outcome("pass", f"{text}; {note}, which changes no duration", event.source)


def _attempts(contents: Contents) -> _Attempts:
    """Return the logs of each job with the clocks of their nodes."""
    members = {job.record.job: job for job in (*contents.training_jobs, *contents.workers)}
    return {
        number: [
            _Attempt(log, _clock(contents.nodes_of(folder) if folder else ()))
            for log, folder in zip(
                logs,
                members[number].folders if number in members else [None] * len(logs),
                strict=True,
            )
        ]
        for number, logs in contents.history.jobs.items()
    }


def _clock(nodes: Sequence[NodeRecord]) -> Clock | None:
    """Return the clock of the node that wrote the log of an attempt."""
    return next((node.clock for node in nodes if node.node == 0), None)


def _faults(attempts: _Attempts) -> Iterator[tuple[Event, str]]:
    for number, logs in attempts.items():
        for attempt in logs:
            if fault := attempt.disagreement(own=number == 0):
                yield fault
    was_set = any(attempt.steps for logs in attempts.values() for attempt in logs)
    for logs in attempts.values():
        yield from _overlaps(logs, was_set)
    yield from _outside(attempts, was_set)


def _standstills(attempts: _Attempts) -> Iterator[Outcome]:
    """Yield the steps ahead that no other clock shows to be those of a wall clock that was set."""
    recorded = _witnessed(attempts, "job-lost") | _recorded_ends(attempts)
    for number, logs in attempts.items():
        ends = [*map(_first, logs[1:]), recorded.get(number)]
        for attempt, end in zip(logs, ends, strict=False):
            for event, step_s in attempt.steps_ahead:
                late_s = _noted_late_s(attempt, *end) if end else None
                outcome = _standstill(event, step_s, late_s)
                if outcome and not _others_went_on(attempts, attempt, event, step_s):
                    yield outcome


def _standstill(event: Event, step_s: float, late_s: float | None) -> Outcome | None:
    """Return what a step ahead means if the end of the attempt was noted ``late_s`` after it."""
    length = seconds(step_s)
    if late_s is None:
        known = f"a wall clock was set ahead by {length}, or the machine stood still"
        return Outcome("cannot tell", f"{known}: no other clock shows which", event.source)
    if late_s > step_s + MAX_CLOCK_STEP_S:
        known = f"a wall clock was set ahead by {length}, or the node stood still"
        noted = f"its end was noted only {seconds(late_s)} after its last event"
        return Outcome("cannot tell", f"{known}: {noted}", event.source)
    if late_s > step_s - MAX_CLOCK_STEP_S:
        noted = "by the clock of the controller, which its own clock did not count"
        return Outcome("fail", f"the node stood still for {length} {noted}", event.source)
    return None


def _first(attempt: _Attempt) -> tuple[_Attempt, Event] | None:
    return (attempt, attempt.log.events[0]) if attempt.log.events else None


def _noted_late_s(attempt: _Attempt, other: _Attempt, noted: Event) -> float | None:
    """Return how long after the last event of an attempt its end was noted, by the reference.

    None if the reference is the clock of the attempt itself, or is not known.
    """
    clock = attempt.reference_clock
    if clock in (None, attempt.log.clock) or clock != (other.reference_clock or other.log.clock):
        return None
    return other.reference_s(noted) - attempt.reference_s(attempt.log.events[-1])


def _others_went_on(attempts: _Attempts, attempt: _Attempt, event: Event, step_s: float) -> bool:
    """Whether the log of another job shows that the machine did not stand still for a step."""
    start_s, end_s = attempt.before(event).time_s, event.time_s
    recorded = _recorded_ends(attempts)
    others = ((job, other) for job, logs in attempts.items() for other in logs if other.log.events)
    for job, other in others:
        if other is attempt:
            continue
        if other.log.clock == attempt.log.clock:
            # The machine is the same: if it had stood still, this log would have the same step.
            set_ahead_s = other.set_ahead_s(start_s, end_s)
            if set_ahead_s is not None and set_ahead_s < step_s - MAX_CLOCK_STEP_S:
                return True
        elif other.reference_clock == attempt.log.clock and job in recorded:
            # If the reference had stood still, this job would go on after its recorded end.
            first, last = other.log.events[0], other.log.events[-1]
            if other.reference_s(first) < end_s and other.reference_s(last) > start_s:
                return True
    return False


def _overlaps(attempts: Sequence[_Attempt], was_set: bool) -> Iterator[tuple[Event, str]]:
    """Yield the first event of each attempt that began before the previous one had ended."""
    for before, after in pairwise(attempt for attempt in attempts if attempt.log.events):
        last, first = before.log.events[-1], after.log.events[0]
        if min(_between_s(before, last, after, first, was_set)) < -MAX_CLOCK_STEP_S:
            yield first, "the attempt started before the previous one ended"


def _outside(attempts: _Attempts, was_set: bool) -> Iterator[tuple[Event, str]]:
    """Yield the events of jobs from before their planning or after their recorded end."""
    planned, ended = _witnessed(attempts, "job-planned"), _recorded_ends(attempts)
    for number, logs in attempts.items():
        for attempt in logs if number else ():
            for event in (*attempt.log.events[:1], *attempt.log.events[-1:]):
                early_s = late_s = -inf
                if number in planned:
                    early_s = max(_between_s(attempt, event, *planned[number], was_set))
                if number in ended:
                    late_s = max(_between_s(*ended[number], attempt, event, was_set))
                if early_s > MAX_CLOCK_STEP_S:
                    yield event, f"the job logged this {seconds(early_s)} before it was planned"
                if late_s > MAX_CLOCK_STEP_S:
                    yield event, f"the job logged this {seconds(late_s)} after its recorded end"


def _recorded_ends(attempts: _Attempts) -> dict[int, tuple[_Attempt, Event]]:
    """Return the event at the end of each job in the run's own logs.

    Earlier versions recorded it only when all jobs had ended.
    """
    return _witnessed(attempts, "job-trained") | _witnessed(attempts, "job-ended")


def _witnessed(attempts: _Attempts, kind: str) -> dict[int, tuple[_Attempt, Event]]:
    """Return the last event of a kind about each job in the run's own logs."""
    return {
        event.data["job"]: (attempt, event)
        for attempt in attempts.get(0, ())
        for event in attempt.log.events
        if event.kind == kind and isinstance(event.data.get("job"), int)
    }


def _between_s(
    before: _Attempt, first: Event, after: _Attempt, last: Event, was_set: bool
) -> list[float]:
    """Return the seconds from one event to another, by each clock that both are on.

    ``was_set`` is whether a wall clock was set during the run: then monotonic clocks decide.
    """
    clocks = {attempt.reference_clock or attempt.log.clock for attempt in (before, after)}
    compared = all(attempt.node is None or attempt.reference_clock for attempt in (before, after))
    intervals_s = []
    if len(clocks) == 1 and None not in clocks and compared:
        intervals_s.append(after.reference_s(last) - before.reference_s(first))
    if not intervals_s or not was_set:
        intervals_s.append(after.utc_s(last) - before.utc_s(first))
    return intervals_s
