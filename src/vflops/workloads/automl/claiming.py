"""Claims the next candidate of a worker: its first rank decides, and the other ranks follow."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from vflops.errors import Interrupted
from vflops.train.context import JobContext
from vflops.train.parallel.factory import ParallelPlan
from vflops.units import seconds
from vflops.workloads.automl.backoff import Backoff
from vflops.workloads.automl.candidate import Deadline
from vflops.workloads.automl.candidate_buffer import CandidateBuffer
from vflops.workloads.automl.candidate_source import CandidateSource
from vflops.workloads.automl.convergence import Convergence
from vflops.workloads.automl.search_events import (
    CandidateCut,
    CandidateFailed,
    SearchEnded,
    Turn,
    WorkerWaiting,
)
from vflops.workloads.automl.worker_history import UnfinishedCandidate

_MAX_TRIES = 2
"""How many attempts may die training one candidate before it is skipped; a worker has more."""
_ANNOUNCE_S = 5.0
"""How often a waiting first rank announces its state to the other ranks, before they time out."""
_HEARTBEATS = 4
"""Heartbeats of a waiting worker within the time after which it is considered dead."""
_OVER, _NOT_YET, _FIRST = 0, 1, 2
"""What the first rank announces: no more candidates; none yet; or a number from ``_FIRST`` on that
encodes a turn (times 2) and whether its candidate is to be skipped (plus 1)."""
_STOP = 1 << 62
"""Larger than any announcement of a turn."""


@dataclass(frozen=True)
class ClaimedCandidate:
    """A candidate to train."""

    turn: Turn
    unfinished: UnfinishedCandidate | None = None
    """The state in which an earlier attempt left it."""
    hopeless: bool = False
    """Whether too many attempts died training it, so that it is skipped."""


@dataclass
class CandidateClaimer:
    """Claims one candidate after the other; every rank has a claimer."""

    context: JobContext
    plan: ParallelPlan
    buffer: CandidateBuffer
    deadline: Deadline
    worker: int
    unfinished: list[UnfinishedCandidate]
    """Candidates that earlier attempts claimed and did not finish."""
    turn_s: float
    """A worker that is silent for this long is considered dead."""
    clean: Callable[[str], None]
    """Called with the name of a candidate that is given up."""
    max_candidates: int | None = None
    """The number of candidates to train; None if only the time limit ends the search."""
    convergence: Convergence | None = None
    """Decides whether the search has converged; None if that does not end it."""
    done: int = 0
    """The number of candidates that have ended, including those of earlier attempts."""
    waited_s: float = field(default=0.0, init=False)
    """How long the last call to ``next`` waited."""
    _heartbeat_s: float = field(default=0.0, init=False)

    def next(self, source: CandidateSource | None) -> ClaimedCandidate | None:
        """Return the candidate to train, the same on all ranks; None if there are no more."""
        self.context.clock.enter("start-up")
        began_s = self._heartbeat_s = time.monotonic()
        if self.convergence is not None and source is not None:
            self.convergence.decide()
        backoff = Backoff()
        while (agreed := self._agree(source, backoff)) == _NOT_YET:
            pass
        self.waited_s = time.monotonic() - began_s
        if agreed == _OVER:
            return None
        number, hopeless = divmod(agreed - _FIRST, 2)
        turn = Turn.numbered(number)
        unfinished = next(
            (candidate for candidate in self.unfinished if candidate.turn == turn), None
        )
        self.unfinished = [
            candidate for candidate in self.unfinished if candidate is not unfinished
        ]
        return ClaimedCandidate(turn, unfinished, bool(hopeless))

    def _agree(self, source: CandidateSource | None, backoff: Backoff) -> int:
        announcement = self._announcement(source, backoff) if self.plan.leads else _OVER
        agreed = self.plan.agree(_STOP if self.context.stop.signal else announcement)
        if agreed == _STOP:
            signal = self.context.stop.signal or "a signal on another rank"
            raise Interrupted(f"stopped by {signal} between two candidates")
        return agreed

    def _announcement(self, source: CandidateSource | None, backoff: Backoff) -> int:
        """Return what the first rank announces, after waiting for at most a few seconds."""
        self._fail_lost()
        if self.deadline.passed:
            self._cut_unfinished()
        if self.unfinished:
            candidate = self.unfinished[0]
            return _FIRST + 2 * candidate.turn.number + (candidate.tries >= _MAX_TRIES)
        if source is None:
            return self._over()
        end_s = time.monotonic() + _ANNOUNCE_S
        while time.monotonic() < end_s:
            if self.deadline.signal or (
                self.max_candidates is not None and self.done >= self.max_candidates
            ):
                return self._over()
            available = source.available()
            if available is None:
                self._write_end(source)
                return _OVER
            for turn in _spread(available, self.worker):
                if self.buffer.claim(turn, self.worker, self.context.record.job):
                    return _FIRST + 2 * turn.number
            self._write_heartbeat()
            backoff.wait()
        return _NOT_YET

    def _over(self) -> int:
        """Announce the end; write an event if the search has converged."""
        end = self.convergence.end if self.convergence is not None else None
        if end is not None and self.context.stop.signal is None:
            message = f"the search has converged after {seconds(end.duration_s)}"
            ended = SearchEnded(worker=self.worker, message=message, converged=end)
            self.context.write_event("search-ended", ended)
        return _OVER

    def _fail_lost(self) -> None:
        """Report candidates with unreadable results as failed, so that no worker waits for them."""
        for candidate in [candidate for candidate in self.unfinished if candidate.lost]:
            message = "its result cannot be read: the worker's log is damaged"
            failed = CandidateFailed(candidate=candidate.turn.name, message=message)
            self.context.write_event("candidate-failed", failed)
            self._drop(candidate)
            self.done += 1

    def _cut_unfinished(self) -> None:
        """Report unfinished candidates as cut: there is no time left to train them."""
        for candidate in list(self.unfinished):
            cut = CandidateCut(candidate=candidate.turn.name, samples=candidate.samples)
            self.context.write_event("candidate-cut", cut)
            self._drop(candidate)

    def _drop(self, candidate: UnfinishedCandidate) -> None:
        self.unfinished.remove(candidate)
        self.clean(candidate.turn.name)

    def _write_end(self, source: CandidateSource) -> None:
        if source.end_reason is not None:
            ended = SearchEnded(worker=self.worker, message=source.end_reason)
            self.context.write_event("search-ended", ended)

    def _write_heartbeat(self) -> None:
        """Write an occasional heartbeat; a worker that is training writes enough events anyway."""
        if time.monotonic() - self._heartbeat_s >= self.turn_s / _HEARTBEATS:
            self._heartbeat_s = time.monotonic()
            self.context.write_event("waiting", WorkerWaiting(worker=self.worker), sync=False)


def _spread(available: Sequence[Turn], worker: int) -> Sequence[Turn]:
    """Return the turns in the order in which a worker tries to claim them.

    Workers begin at different ones. Otherwise hundreds that look for a candidate at the same time
    would all try the first one, and all but one of them the second.
    """
    start = worker % max(len(available), 1)
    return [*available[start:], *available[:start]]
