"""Decides whether the ranks of a job hang, from their progress and the state of their processes.

The limit is learned from the job itself, and a healthy job must never be taken for a hanging one:

- A job hangs only if all of its ranks are silent for longer than their limits. As long as one of
  them makes progress, the others may be waiting for it.
- A process that was stopped by a signal cannot make progress by itself, so it hangs after a few
  seconds, whatever the others do. If the whole job was suspended, this process did not run either.
- The limit is a multiple of the longest silence seen in the same phase, and at least the floor. In
  a phase that a rank has not completed before, it is much longer, and longer still while it
  compiles. The start of a job and what follows its training have no limit.
- Time in which this process did not run either does not count: a suspended job, a sleeping laptop.
- Time in which a rank waits for storage counts less, and time under a debugger does not count.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from vflops.launch.heartbeat import START_UP, Beat

ProcessState = Literal["active", "storage", "stopped", "traced"]

PATIENCE = 6.0
"""How many times longer a limit is where nothing was learned yet."""
STOPPED_S = 10.0
"""How long a process may be stopped by a signal while its agent runs."""
_COMPILATION = 24.0
"""How many times longer the limit of a compilation is: two hours by default."""
_SAME_PHASE, _OTHER_PHASE = 20.0, 2.0
"""The limit as a multiple of the longest silence in the same phase, and in any other one."""
_WEIGHTS: Mapping[ProcessState, float] = {
    "active": 1.0,
    "storage": 1.0 / PATIENCE,
    "stopped": 1.0,
    "traced": 0.0,
}
"""How much the time in a state counts as silence."""


@dataclass(frozen=True)
class Observation:
    """What was seen of a rank at one moment."""

    beat: Beat
    state: ProcessState = "active"


@dataclass(frozen=True)
class Silence:
    """A rank that has not made progress for longer than its limit."""

    silent_s: float
    limit_s: float
    phase: str
    beats: int
    stopped: bool


@dataclass
class HangJudge:
    """Observes the ranks of a job on one node."""

    floor_s: float
    """The shortest limit."""
    every_s: float = 1.0
    """The usual time between two observations; in a much longer one, this process did not run."""
    _silent_s: dict[int, float] = field(default_factory=dict)
    _stopped_s: dict[int, float] = field(default_factory=dict)
    """For how long each rank has been stopped without a break."""
    _last: dict[int, Beat] = field(default_factory=dict)
    _slowest_s: dict[str, float] = field(default_factory=dict)
    _observed_s: float | None = None

    def observe(self, now_s: float, ranks: Mapping[int, Observation]) -> dict[int, Silence]:
        """Take an observation of all ranks that run.

        Return those that were stopped for too long, or else all of them if all are silent too long.
        """
        since_s = 0.0 if self._observed_s is None else now_s - self._observed_s
        self._observed_s = now_s
        step_s = min(max(since_s, 0.0), 2.0 * self.every_s)
        silences = {}
        for rank, seen in ranks.items():
            self._take(rank, seen, step_s)
            silence = self._silence(rank, seen)
            if silence.silent_s > silence.limit_s:
                silences[rank] = silence
        stuck = {rank: silence for rank, silence in silences.items() if silence.stopped}
        return stuck or (silences if len(silences) == len(ranks) else {})

    def _take(self, rank: int, seen: Observation, step_s: float) -> None:
        last, silent_s = self._last.get(rank), self._silent_s.get(rank, 0.0)
        stopped_s = self._stopped_s.get(rank, 0.0) + step_s
        self._stopped_s[rank] = stopped_s if seen.state == "stopped" else 0.0
        if last is not None and last.number == seen.beat.number:
            self._silent_s[rank] = silent_s + step_s * _WEIGHTS[seen.state]
            return
        if last is not None and last.phase != START_UP:
            self._slowest_s[last.phase] = max(self._slowest_s.get(last.phase, 0.0), silent_s)
        self._last[rank], self._silent_s[rank] = seen.beat, 0.0

    def _silence(self, rank: int, seen: Observation) -> Silence:
        # The silence before a stop does not count for it: a suspension may end with a short stop.
        stopped_s = self._stopped_s[rank]
        is_stuck = stopped_s > STOPPED_S
        return Silence(
            silent_s=stopped_s if is_stuck else self._silent_s[rank],
            limit_s=STOPPED_S if is_stuck else self._limit_s(seen.beat),
            phase=seen.beat.phase,
            beats=seen.beat.number,
            stopped=is_stuck,
        )

    def _limit_s(self, beat: Beat) -> float:
        if beat.phase == START_UP:
            return float("inf")
        if beat.phase == "compilation":  # one tells little about the next
            patience = _COMPILATION
        else:
            patience = 1.0 if beat.phase in beat.earlier else PATIENCE
        longest_s = max(self._slowest_s.values(), default=0.0)
        return max(
            self.floor_s * patience,
            _SAME_PHASE * self._slowest_s.get(beat.phase, 0.0),
            _OTHER_PHASE * longest_s,
        )
