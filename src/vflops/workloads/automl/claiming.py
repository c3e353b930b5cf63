"""Which candidate a worker trains next: the first of its ranks decides, the others follow."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from vflops.errors import Interrupted
from vflops.train.context import JobContext
from vflops.train.parallel.factory import ParallelPlan
from vflops.workloads.automl.backoff import Pause
from vflops.workloads.automl.candidate import Deadline
from vflops.workloads.automl.candidate_buffer import Buffer
from vflops.workloads.automl.candidate_source import Offers
from vflops.workloads.automl.search_events import (
    CandidateCut,
    CandidateFailed,
    SearchEnded,
    Turn,
    WorkerWaits,
)
from vflops.workloads.automl.worker_history import Half

_MOST_TRIES = 2
"""Attempts of a worker that may die over one candidate before it is left out: fewer than it has."""
_AGREE_S = 5.0
"""While one rank waits for a candidate the others hear of it this often, and give up on nobody."""
_SIGNS = 4
"""Signs of life while a worker waits, in the time after which it is taken for dead."""
_OVER, _NOT_YET, _FIRST = 0, 1, 2
"""What the first rank says: it is over; it waits; from here on a turn's number, or, odd, the same
turn to be left out."""
_STOP = 1 << 62
"""More than any turn's number."""


@dataclass(frozen=True)
class Taken:
    """A candidate to train."""

    turn: Turn
    half: Half | None = None
    """What an earlier attempt did of it."""
    hopeless: bool = False
    """Whether too many attempts died over it: it is left out."""


@dataclass
class Taking:
    """Takes one candidate after the other; every rank has one."""

    context: JobContext
    plan: ParallelPlan
    buffer: Buffer
    deadline: Deadline
    worker: int
    left: list[Half]
    """What earlier attempts claimed and did not end."""
    turn_s: float
    """Silent for so long, it is taken for dead."""
    clean: Callable[[str], None]
    """Called with a candidate that nothing more will be done with."""
    most: int | None = None
    """Candidates after which it is over; None: only time ends it."""
    done: int = 0
    """That came to an end, in earlier attempts too."""
    waited_s: float = field(default=0.0, init=False)
    """For the newest one."""
    _sign_s: float = field(default=0.0, init=False)

    def next(self, offers: Offers | None) -> Taken | None:
        """The candidate to train, the same on all ranks; None: it is over."""
        self.context.clock.enter("start-up")
        began_s = self._sign_s = time.monotonic()
        pause = Pause()
        while (agreed := self._agreed(offers, pause)) == _NOT_YET:
            pass
        self.waited_s = time.monotonic() - began_s
        if agreed == _OVER:
            return None
        number, hopeless = divmod(agreed - _FIRST, 2)
        turn = Turn.numbered(number)
        half = next((each for each in self.left if each.turn == turn), None)
        self.left = [each for each in self.left if each is not half]
        return Taken(turn, half, bool(hopeless))

    def _agreed(self, offers: Offers | None, pause: Pause) -> int:
        wish = self._wish(offers, pause) if self.plan.leads else _OVER
        agreed = self.plan.agree(_STOP if self.context.stop.signal else wish)
        if agreed == _STOP:
            signal = self.context.stop.signal or "a signal on another rank"
            raise Interrupted(f"stopped by {signal} between two candidates")
        return agreed

    def _wish(self, offers: Offers | None, pause: Pause) -> int:
        """What the first rank says, after a few seconds at the latest."""
        self._drop_lost()
        if self.deadline.passed:
            self._cut_left()
        if self.left:
            half = self.left[0]
            return _FIRST + 2 * half.turn.number + (half.tries >= _MOST_TRIES)
        if offers is None:
            return _OVER
        end_s = time.monotonic() + _AGREE_S
        while time.monotonic() < end_s:
            if self.deadline.signal or (self.most is not None and self.done >= self.most):
                return _OVER
            offered = offers.now()
            if offered is None:
                self._tell_end(offers)
                return _OVER
            for turn in offered:
                if self.buffer.claim(turn, self.worker, self.context.record.job):
                    return _FIRST + 2 * turn.number
            self._give_sign()
            pause.wait()
        return _NOT_YET

    def _drop_lost(self) -> None:
        """Tell that nothing is known of what was trained and cannot be read: nobody waits then."""
        for each in [each for each in self.left if each.lost]:
            message = "what became of it cannot be read: the worker's log is damaged"
            failed = CandidateFailed(candidate=each.turn.name, message=message)
            self.context.write_event("candidate-failed", failed)
            self._drop(each)
            self.done += 1

    def _cut_left(self) -> None:
        """No time is left for what was begun: building it would be for nothing."""
        for each in list(self.left):
            cut = CandidateCut(candidate=each.turn.name, samples=each.samples)
            self.context.write_event("candidate-cut", cut)
            self._drop(each)

    def _drop(self, half: Half) -> None:
        self.left.remove(half)
        self.clean(half.turn.name)

    def _tell_end(self, offers: Offers) -> None:
        if offers.why is not None:
            ended = SearchEnded(worker=self.worker, message=offers.why)
            self.context.write_event("search-ended", ended)

    def _give_sign(self) -> None:
        """Now and then; a worker that trains gives signs enough."""
        if time.monotonic() - self._sign_s >= self.turn_s / _SIGNS:
            self._sign_s = time.monotonic()
            self.context.write_event("waiting", WorkerWaits(worker=self.worker), sync=False)
