"""How long the steps of a part took, from commitment to commitment: then and here.

Only data and training count. The phases of commitments say when a state was reached; progress
events may be left out of a log, but the states at both ends of a part may not.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from vflops.record.formats.job_events import Committed, Finished, ProgressPoint
from vflops.record.readout.commitment_lineage import LineState

FIRST_STEPS = 4
"""The first steps of a process that are not timed: they choose kernels and allocate memory."""
_LEAST_S = 1e-9


@dataclass(frozen=True)
class TimedSteps:
    """Some steps of a part, and the seconds that they took."""

    steps: float
    seconds: float

    @property
    def per_step_s(self) -> float:
        """Seconds per step; more than none, whatever a log claims."""
        return max(self.seconds / self.steps, _LEAST_S)


@dataclass(frozen=True)
class TimePoint:
    """When an attempt had made a step."""

    attempt: int
    step: int
    work_s: float
    samples_compiling: int = 0

    @classmethod
    def of(cls, attempt: int, point: Committed | ProgressPoint) -> TimePoint:
        """Return the time of a commitment or of a progress event."""
        work_s = point.phases.get("data", 0.0) + point.phases.get("training", 0.0)
        return cls(attempt, point.step, work_s, point.samples_compiling)


def recorded_points(
    states: Sequence[LineState], finished: Finished, first: int, last: int
) -> list[TimePoint]:
    """Return the times of the states of a training from ``first`` to ``last``."""
    points = []
    for state in states:
        number, begun = id(state.attempt), state.attempt.first_step
        points.append(TimePoint(number, begun, 0.0))
        if state.committed.phases:
            points.append(TimePoint.of(number, state.committed))
    if states and last == finished.step:
        points.append(TimePoint.of(id(states[-1].attempt), finished))
    return [point for point in points if first <= point.step <= last]


def timed_steps(points: Iterable[TimePoint], batch: int) -> TimedSteps | None:
    """Return the steps between the first and the last point of each attempt; None without any."""
    steps = seconds = 0.0
    ordered = sorted(points, key=lambda point: (point.attempt, point.step, point.work_s))
    for _, group in groupby(ordered, key=lambda point: point.attempt):
        several = list(group)
        begin, end = several[0], several[-1]
        compiling = (end.samples_compiling - begin.samples_compiling) / batch
        steps += max(end.step - begin.step - compiling, 0.0)
        seconds += end.work_s - begin.work_s
    return TimedSteps(steps, seconds) if steps else None


def timed_here(points: Sequence[TimePoint], batch: int) -> TimedSteps | None:
    """Return the steps of a part that was trained again, without its uneven first ones."""
    if not points:
        return None
    first, last = points[0].step, points[-1].step
    skipped = min(FIRST_STEPS, (last - first) // 2)
    later = [point for point in points if point.step >= first + skipped]
    return timed_steps(later, batch) or timed_steps(points, batch)
