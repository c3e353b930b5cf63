"""Which candidate a worker trains next: its first rank decides, the other ranks follow."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from vflops.errors import Interrupted
from vflops.train.context import JobContext
from vflops.train.parallel.factory import ParallelPlan
from vflops.workloads.automl.backoff import Backoff
from vflops.workloads.automl.candidate import Deadline
from vflops.workloads.automl.candidate_buffer import CandidateBuffer
from vflops.workloads.automl.candidate_source import CandidateSource
from vflops.workloads.automl.search_events import (
    CandidateCut,
    CandidateFailed,
    SearchEnded,
    Turn,
    WorkerWaiting,
)
from vflops.workloads.automl.worker_history import UnfinishedCandidate

_MOST_TRIES = 2
"""Attempts that may die training one candidate before it is skipped; fewer than a worker has."""
_AGREE_S = 5.0
"""How often a waiting first rank reports to the other ranks, which would time out otherwise."""
_SIGNS = 4
"""Signs of life of a waiting worker within the time after which it is considered dead."""
_OVER, _NOT_YET, _FIRST = 0, 1, 2
"""What the first rank announces: no more candidates; not yet; or, from ``_FIRST`` on, the number of
a turn, times 2, plus 1 if its candidate is to be skipped."""
_STOP = 1 << 62
"""Larger than any announcement of a turn."""


@dataclass(frozen=True)
class ClaimedCandidate:
    """A candidate to train."""

    turn: Turn
    unfinished: UnfinishedCandidate | None = None
    """What an earlier attempt left of it."""
    hopeless: bool = False
    """Whether too many attempts died training it, so that it is skipped."""


@dataclass
class CandidateClaimer:
    """Claims one candidate after the other; every rank has one."""

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
    most: int | None = None
    """The number of candidates to train; None: only the time ends the search."""
    done: int = 0
    """Candidates that ended, in earlier attempts too."""
    waited_s: float = field(default=0.0, init=False)
    """How long the last call of ``next`` waited."""
    _sign_s: float = field(default=0.0, init=False)

    def next(self, source: CandidateSource | None) -> ClaimedCandidate | None:
        """Return the candidate to train, the same on all ranks; None if there are no more."""
        self.context.clock.enter("start-up")
        began_s = self._sign_s = time.monotonic()
        backoff = Backoff()
        while (agreed := self._agreed(source, backoff)) == _NOT_YET:
            pass
        self.waited_s = time.monotonic() - began_s
        if agreed == _OVER:
            return None
        number, hopeless = divmod(agreed - _FIRST, 2)
        turn = Turn.numbered(number)
        unfinished = next((left for left in self.unfinished if left.turn == turn), None)
        self.unfinished = [left for left in self.unfinished if left is not unfinished]
        return ClaimedCandidate(turn, unfinished, bool(hopeless))

    def _agreed(self, source: CandidateSource | None, backoff: Backoff) -> int:
        choice = self._choice(source, backoff) if self.plan.leads else _OVER
        agreed = self.plan.agree(_STOP if self.context.stop.signal else choice)
        if agreed == _STOP:
            signal = self.context.stop.signal or "a signal on another rank"
            raise Interrupted(f"stopped by {signal} between two candidates")
        return agreed

    def _choice(self, source: CandidateSource | None, backoff: Backoff) -> int:
        """What the first rank announces, within a few seconds."""
        self._fail_lost()
        if self.deadline.passed:
            self._cut_unfinished()
        if self.unfinished:
            left = self.unfinished[0]
            return _FIRST + 2 * left.turn.number + (left.tries >= _MOST_TRIES)
        if source is None:
            return _OVER
        end_s = time.monotonic() + _AGREE_S
        while time.monotonic() < end_s:
            if self.deadline.signal or (self.most is not None and self.done >= self.most):
                return _OVER
            available = source.available()
            if available is None:
                self._write_end(source)
                return _OVER
            for turn in available:
                if self.buffer.claim(turn, self.worker, self.context.record.job):
                    return _FIRST + 2 * turn.number
            self._give_sign()
            backoff.wait()
        return _NOT_YET

    def _fail_lost(self) -> None:
        """Report candidates with unreadable results as failed, so that nobody waits for them."""
        for left in [left for left in self.unfinished if left.lost]:
            message = "its result cannot be read: the worker's log is damaged"
            failed = CandidateFailed(candidate=left.turn.name, message=message)
            self.context.write_event("candidate-failed", failed)
            self._drop(left)
            self.done += 1

    def _cut_unfinished(self) -> None:
        """Report unfinished candidates as cut: there is no time left to train them."""
        for left in list(self.unfinished):
            cut = CandidateCut(candidate=left.turn.name, samples=left.samples)
            self.context.write_event("candidate-cut", cut)
            self._drop(left)

    def _drop(self, left: UnfinishedCandidate) -> None:
        self.unfinished.remove(left)
        self.clean(left.turn.name)

    def _write_end(self, source: CandidateSource) -> None:
        if source.end_reason is not None:
            ended = SearchEnded(worker=self.worker, message=source.end_reason)
            self.context.write_event("search-ended", ended)

    def _give_sign(self) -> None:
        """Write a sign of life now and then; a worker that trains writes enough events anyway."""
        if time.monotonic() - self._sign_s >= self.turn_s / _SIGNS:
            self._sign_s = time.monotonic()
            self.context.write_event("waiting", WorkerWaiting(worker=self.worker), sync=False)
