"""The score of a search over time, and when it has converged.

The score and the workers, which may end a search that has converged, share this definition.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import ceil

from vflops.metrics import flops, relative_range
from vflops.workloads.automl.search_history import SearchHistory

MOMENTS = 100
"""The number of moments, evenly spaced over a search."""
LAST_SHARE = 0.2
MAX_VARIATION = 0.02
"""A search has converged if its score varies by less than this in the last share of its time."""
_ROUNDING_S = 1e-6
"""The resolution of Unix time in floating point."""


@dataclass(frozen=True)
class Moment:
    """A search up to one time."""

    time_s: float
    """Seconds since the start of the first worker."""
    ops: int
    ops_per_s: float
    accuracy: float | None
    """The best accuracy so far."""
    ended: int
    """Candidates that have ended, except those that the end of the search cut off."""
    counts: bool
    """Whether it is after the warm-up, so that the score may be taken here."""


@dataclass
class _Step:
    """What candidates added between two moments."""

    ops: int = 0
    ended: int = 0
    accuracies: list[float] = field(default_factory=list)


def search_moments(search: SearchHistory, first_round: int) -> list[Moment]:
    """Return a search at evenly spaced times; only those after the rounds of the warm-up count."""
    if search.span_s is None or search.span_s[1] <= search.span_s[0]:
        return []
    start_s, end_s = search.span_s
    warm_up_end_s = max(
        (history.last_s for history in search.candidates if history.turn.round + 1 < first_round),
        default=start_s,
    )
    step_s = (end_s - start_s) / MOMENTS
    moments: list[Moment] = []
    ops, ended, best = 0, 0, list[float]()
    for number, step in enumerate(_steps(search, start_s, step_s), start=1):
        time_s = number * step_s
        ops, ended = ops + step.ops, ended + step.ended
        best = [max(best + step.accuracies)] if best or step.accuracies else []
        moments.append(
            Moment(
                time_s=time_s,
                ops=ops,
                ops_per_s=flops(ops=ops, time_s=time_s),
                accuracy=best[0] if best else None,
                ended=ended,
                counts=ops > 0 and start_s + time_s >= warm_up_end_s - _ROUNDING_S,
            )
        )
    return moments


def variation(moments: Sequence[Moment]) -> float | None:
    """Return (largest − smallest) / mean of the score in the last fifth of the time.

    None if too few moments count.
    """
    last = moments[-round(MOMENTS * LAST_SHARE) :]
    if not last or sum(moment.counts for moment in moments) < len(last):
        return None
    return relative_range([moment.ops_per_s for moment in last])


def has_converged(moments: Sequence[Moment]) -> bool | None:
    """Whether the score was stable at the end; None if too few moments count."""
    varies = variation(moments)
    return None if varies is None else varies < MAX_VARIATION


def _steps(search: SearchHistory, start_s: float, step_s: float) -> list[_Step]:
    """Return what each time step added. Events at the end of a step belong to it."""
    steps = [_Step() for _ in range(MOMENTS)]

    def step(utc_s: float) -> _Step:
        number = ceil((utc_s - start_s - _ROUNDING_S) / step_s) - 1
        return steps[min(max(number, 0), MOMENTS - 1)]

    for history in search.candidates:
        before = 0
        for point in history.points:
            current = step(point.utc_s)
            current.ops += point.ops - before
            before = point.ops
            if point.quality is not None:
                current.accuracies.append(point.quality)
        if history.ended_s is not None and history.state != "cut":
            step(history.ended_s).ended += 1
    return steps
