"""What earlier attempts of a worker left behind: unfinished candidates and time already used."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property

from vflops.record.formats.job_events import Evaluated, Finished
from vflops.record.log.boot import monotonic_clock_id
from vflops.record.log.events import Event, Log
from vflops.workloads.automl.candidate_history import CandidateTracker
from vflops.workloads.automl.search_events import CandidateFailed, Turn, WorkerBegun

_CLOCK_TOLERANCE_S = 1.0
"""Differences between wall clock and monotonic clock up to this are normal."""


@dataclass
class UnfinishedCandidate:
    """A candidate that an earlier attempt claimed and did not finish."""

    turn: Turn
    tries: int = 0
    """Attempts that died training it since its newest checkpoint; stopped attempts do not count."""
    evaluations: list[Evaluated] = field(default_factory=list)
    finished: Finished | None = None
    samples: int = 0
    """Samples trained on, according to its last progress."""
    lost: bool = False
    """Whether the worker began another candidate although the log has no outcome of this one."""


@dataclass(frozen=True)
class WorkerHistory:
    """The earlier attempts of one worker."""

    logs: Sequence[Log]
    failed: Sequence[CandidateFailed] = ()
    """Candidates that cannot be trained, as their ranks wrote beside the logs."""

    @property
    def begun(self) -> bool:
        """Whether any attempt began to work."""
        return any(event.kind == "worker" for event in self._events())

    @property
    def memory_bytes(self) -> int | None:
        """The memory of a rank as the first attempt measured it, so that proposals stay equal."""
        began = [event.payload(WorkerBegun) for event in self._events() if event.kind == "worker"]
        return began[0].memory_bytes if began else None

    @property
    def ended(self) -> frozenset[str]:
        """The names of the candidates that ended: trained, failed or cut."""
        return frozenset(self._tracker.outcomes) | {failure.candidate for failure in self.failed}

    @property
    def unrecorded(self) -> list[CandidateFailed]:
        """The failed candidates without an outcome in the logs."""
        return [item for item in self.failed if item.candidate not in self._tracker.outcomes]

    @property
    def failed_starts(self) -> int:
        """How many of the newest attempts in a row died before they began the next candidate."""
        died = 0
        for log in reversed(self.logs):
            kinds = [event.kind for event in log.events]
            if "stopped" in kinds:
                break
            died += "worker" in kinds
            if "candidate" in kinds:
                break
        return died

    def unfinished(self) -> UnfinishedCandidate | None:
        """Return the candidate that was in training when the last attempt ended, if any."""
        candidate = self._tracker.unfinished
        if candidate is None or candidate.turn.name in self.ended:
            return None
        return UnfinishedCandidate(
            candidate.turn,
            candidate.tries,
            candidate.results,
            candidate.finished,
            candidate.samples,
        )

    def open_claims(self, claims: Sequence[Turn]) -> list[UnfinishedCandidate]:
        """Return the claimed candidates that did not end, the one that was in training first."""
        in_training = self.unfinished()
        still_open = [turn for turn in claims if turn.name not in self.ended] if self.begun else []
        others = [
            UnfinishedCandidate(turn, lost=turn.name in self._tracker.candidates)
            for turn in still_open
            if in_training is None or turn != in_training.turn
        ]
        if in_training is not None:
            return [in_training, *others]
        next_candidate = next((candidate for candidate in others if not candidate.lost), None)
        if next_candidate is not None:
            next_candidate.tries = self.failed_starts
        return others

    def spent_s(self, now: datetime | None = None) -> tuple[float, str | None]:
        """Return the seconds since the worker first began, and a warning if its clock was set.

        The time between attempts counts as well. It is that of the monotonic clock if both attempts
        have the same one; otherwise that of the wall clock and, if that was set back, zero.
        """
        spans = [(log.clock, *span) for log in self.logs if (span := _span(log)) is not None]
        if not spans:
            return 0.0, None
        spent_s, clock_jumps = 0.0, list[float]()
        next_starts = [(clock, first.time_s, first.utc_s) for clock, first, _ in spans[1:]]
        present_s = (now or datetime.now(UTC)).timestamp()
        next_starts.append((monotonic_clock_id(), time.monotonic(), present_s))
        for (clock, first, last), (next_clock, next_s, next_utc_s) in zip(
            spans, next_starts, strict=True
        ):
            within_s, between_s = last.time_s - first.time_s, next_utc_s - last.utc_s
            if clock is not None and clock == next_clock:
                between_s = next_s - last.time_s
            spent_s += within_s + max(between_s, 0.0)
            clock_jumps += [last.utc_s - first.utc_s - within_s, min(between_s, 0.0)]
        worst_s = max(clock_jumps, key=abs)
        if abs(worst_s) <= _CLOCK_TOLERANCE_S:
            return spent_s, None
        direction = "ahead" if worst_s > 0 else "back"
        return (
            spent_s,
            f"the clock was set {direction} by {abs(worst_s):.0f} s; {spent_s:.0f} s count",
        )

    @cached_property
    def _tracker(self) -> CandidateTracker:
        tracker = CandidateTracker()
        for event in self._events():
            tracker.take(event.kind, event.data)
        return tracker

    def _events(self) -> Iterator[Event]:
        return (event for log in self.logs for event in log.events)


def _span(log: Log) -> tuple[Event, Event] | None:
    """Return the event with which the worker began and the last event of the attempt."""
    begun = next((event for event in log.events if event.kind == "worker"), None)
    return None if begun is None else (begun, log.events[-1])
