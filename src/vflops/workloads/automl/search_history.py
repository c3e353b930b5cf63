"""A whole search, read from its workers' logs: all candidates, and when the workers worked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from math import inf

from vflops.record.log.events import Event, Log
from vflops.workloads.automl.candidate_history import CandidateHistory, CandidateTracker
from vflops.workloads.automl.search_events import (
    CandidateFailed,
    ConvergedEnd,
    SearchEnded,
    WorkerBegun,
)


@dataclass(frozen=True)
class SearchHistory:
    """The candidates and the timing of a search."""

    workers: Sequence[Sequence[Log]]
    """The logs of each worker, one per attempt."""
    offsets_s: Sequence[Sequence[float]] = ()
    """How far the clock of each attempt is ahead of the run's; empty if all clocks agree."""

    @cached_property
    def candidates(self) -> list[CandidateHistory]:
        """All candidates that were begun, in the order of their turns.

        A candidate that is in the logs of two workers is listed twice.
        """
        histories = [
            history for tracker in self._trackers for history in tracker.candidates.values()
        ]
        return sorted(histories, key=lambda history: history.begun.candidate)

    @cached_property
    def unbuilt(self) -> dict[str, str]:
        """The error message of each candidate that failed before its training began."""
        begun = {candidate.begun.candidate for candidate in self.candidates}
        return {
            name: outcome.message
            for tracker in self._trackers
            for name, outcome in tracker.outcomes.items()
            if isinstance(outcome, CandidateFailed) and name not in begun
        }

    @cached_property
    def spans_s(self) -> tuple[tuple[float, float] | None, ...]:
        """Start and end of each worker; None for a worker that never began.

        A worker ends with its last progress, when its time is up or when the search has converged.
        An attempt that starts after that does not extend it.
        """
        return tuple(self._span_s(worker) for worker in range(len(self.workers)))

    @cached_property
    def pauses_s(self) -> tuple[float, ...]:
        """The seconds of each worker's span in which no attempt of it was running."""
        return tuple(self._pause_s(worker) for worker in range(len(self.workers)))

    @cached_property
    def span_s(self) -> tuple[float, float] | None:
        """Start of the first worker and end of the last; None if no candidate made progress."""
        spans = [span for span in self.spans_s if span is not None]
        if not spans or not any(candidate.points for candidate in self.candidates):
            return None
        return min(start_s for start_s, _ in spans), max(end_s for _, end_s in spans)

    @cached_property
    def converged_end(self) -> ConvergedEnd | None:
        """The decision to end the search because its score had converged, if there is one."""
        events = (event for logs in self.workers for log in logs for event in log.events)
        ends = (event.payload(SearchEnded) for event in events if event.kind == "search-ended")
        return next((end.converged for end in ends if end.converged is not None), None)

    @property
    def clock_faults(self) -> list[str]:
        """The warnings of workers about their clocks."""
        events = (event for logs in self.workers for log in logs for event in log.events)
        warnings = (event.payload(WorkerBegun).clock for event in events if event.kind == "worker")
        return [warning for warning in warnings if warning]

    @cached_property
    def _trackers(self) -> list[CandidateTracker]:
        trackers = [CandidateTracker(worker) for worker in range(len(self.workers))]
        for worker, tracker in enumerate(trackers):
            for event, utc_s in self._events(worker):
                tracker.take(event.kind, event.data, utc_s)
        return trackers

    def _span_s(self, worker: int) -> tuple[float, float] | None:
        candidates = self._trackers[worker].candidates.values()
        ends = [candidate.points[-1].utc_s for candidate in candidates if candidate.points]
        began_s: float | None = None
        until_s = 0.0
        converged_s = self.converged_end.utc_s if self.converged_end else inf
        for event, utc_s in self._events(worker):
            if event.kind == "worker" and began_s is None:
                began_s, until_s = utc_s, utc_s + event.payload(WorkerBegun).left_s
            elif event.kind == "end" and began_s is not None:
                ends.append(min(utc_s, until_s, converged_s))
        return None if began_s is None else (began_s, max(ends, default=began_s))

    def _pause_s(self, worker: int) -> float:
        span_s = self.spans_s[worker]
        times_s = [utc_s for _, utc_s in self._events(worker)]
        lengths = [len(log.events) for log in self.workers[worker] if log.events]
        firsts = list(accumulate(lengths))[:-1]
        if span_s is None:
            return 0.0
        gaps = ((times_s[first - 1], min(times_s[first], span_s[1])) for first in firsts)
        return sum(max(end_s - start_s, 0.0) for start_s, end_s in gaps)

    def _events(self, worker: int) -> Iterator[tuple[Event, float]]:
        """Yield the events of a worker with their times on the run's clock.

        The wall clock is used only for the first event of an attempt, the monotonic clock for the
        others.
        """
        for attempt, log in enumerate(self.workers[worker]):
            if log.events:
                first = log.events[0]
                offset_s = self.offsets_s[worker][attempt] if self.offsets_s else 0.0
                zero_s = first.utc_s - offset_s - first.time_s
                for event in log.events:
                    yield event, zero_s + event.time_s
