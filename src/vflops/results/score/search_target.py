"""When a search first had a network of a given error, and what it had computed by then."""

from __future__ import annotations

from dataclasses import dataclass

from vflops.workloads.automl.search_history import SearchHistory


@dataclass(frozen=True)
class TargetReached:
    """The first evaluation that met the target."""

    time_s: float
    """Seconds since the first worker began."""
    ops: int
    """The operations of all workers until then."""


def target_reached(search: SearchHistory, error: float) -> TargetReached | None:
    """Return when an evaluation first had at most this error; None if none had.

    Operations are those of the events until then: an epoch that another worker was still training
    counts up to its last event.
    """
    times_s = [
        point.utc_s
        for candidate in search.candidates
        for point in candidate.points
        if point.quality is not None and 1 - point.quality <= error
    ]
    if not times_s or search.span_s is None:
        return None
    first_s = min(times_s)
    ops = [
        max((point.ops for point in candidate.points if point.utc_s <= first_s), default=0)
        for candidate in search.candidates
    ]
    return TargetReached(first_s - search.span_s[0], sum(ops))
