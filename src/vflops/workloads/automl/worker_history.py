"""What a worker's earlier attempts left: its time that is spent, a candidate half done."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from vflops.record.formats.job import Evaluated, Finished, ProgressPoint
from vflops.record.log.events import Event, Log
from vflops.record.readout.trained_job import PROGRESS_EVENTS
from vflops.workloads.automl.search_events import CandidateBegun, Turn

_CLOCK_S = 1.0
"""What clocks may differ by."""
_ENDS = ("candidate-trained", "candidate-failed", "candidate-cut")


@dataclass
class UnfinishedCandidate:
    """A candidate that an earlier attempt began and did not end."""

    turn: Turn
    tries: int = 0
    """Attempts that died over it since its newest checkpoint; one that was stopped did not."""
    evaluations: list[Evaluated] = field(default_factory=list)
    finished: Finished | None = None
    samples: int = 0
    """Trained on, as far as its notes say."""
    lost: bool = False
    """Whether an attempt went on to another one, and what came of this one cannot be read."""

    def take(self, note: ProgressPoint) -> None:
        """Take in a note of where its training stood."""
        self.samples = max(self.samples, note.samples)
        if isinstance(note, Evaluated):
            self.evaluations.append(note)
        elif isinstance(note, Finished):
            self.finished = note


@dataclass(frozen=True)
class WorkerHistory:
    """The earlier attempts of one worker."""

    logs: Sequence[Log]

    @property
    def rounds(self) -> int:
        """Candidates that came to an end."""
        return sum(event.kind in _ENDS for event in self._events())

    @property
    def begun(self) -> bool:
        """Whether there was an attempt that began to work."""
        return any(event.kind == "worker" for event in self._events())

    @property
    def ended(self) -> frozenset[str]:
        """Their names."""
        return frozenset(str(e.data.get("candidate")) for e in self._events() if e.kind in _ENDS)

    @property
    def died_unbegun(self) -> int:
        """The newest attempts that died before they began a candidate, or after one had ended."""
        died = 0
        for log in reversed(self.logs):
            kinds = [event.kind for event in log.events]
            if "stopped" in kinds:
                break
            died += "worker" in kinds
            if "candidate" in kinds:
                break
        return died

    def left(self, claims: Sequence[Turn]) -> list[UnfinishedCandidate]:
        """What it had claimed and not ended, in the order to take it up: half a candidate first."""
        half = self.half()
        opens = [turn for turn in claims if turn.name not in self.ended] if self.begun else []
        found = [UnfinishedCandidate(turn, lost=turn.name in self._tried) for turn in opens]
        found = [each for each in found if half is None or each.turn != half.turn]
        if half is not None:
            return [half, *found]
        unbegun = next((each for each in found if not each.lost), None)
        if unbegun is not None:
            unbegun.tries = self.died_unbegun
        return found

    @property
    def _tried(self) -> frozenset[str]:
        begun = (event for event in self._events() if event.kind == "candidate")
        return frozenset(str(event.data.get("candidate")) for event in begun)

    def half(self) -> UnfinishedCandidate | None:
        """The candidate to go on with, if there is one."""
        found: UnfinishedCandidate | None = None
        for event in self._events():
            if event.kind == "candidate":
                turn = Turn.named(event.payload(CandidateBegun).candidate)
                found = found if found and found.turn == turn else UnfinishedCandidate(turn)
                found.tries += 1
            elif event.kind in _ENDS:
                found = None
            elif found is not None and event.kind in ("checkpoint", "stopped"):
                found.tries = 0
            elif found is not None and event.kind in PROGRESS_EVENTS:
                found.take(event.payload(PROGRESS_EVENTS[event.kind]))
        return found

    def spent_s(self, now: datetime | None = None) -> tuple[float, str | None]:
        """Seconds since the worker first began; a line where its clock cannot be believed.

        The time between attempts counts: it is lost to the benchmark too. Attempts are timed by the
        clock that nobody sets, what is between them by the one on the wall; where that was set
        back, nothing is known to be between.
        """
        spans = [self._span(log) for log in self.logs]
        worked = [span for span in spans if span is not None]
        if not worked:
            return 0.0, None
        spent_s, jumps = 0.0, list[float]()
        begins = [first.utc_s for first, _ in worked[1:]]
        for (first, last), next_s in zip(
            worked, [*begins, (now or datetime.now(UTC)).timestamp()], strict=True
        ):
            within_s, between_s = last.time_s - first.time_s, next_s - last.utc_s
            spent_s += within_s + max(between_s, 0.0)
            jumps += [last.utc_s - first.utc_s - within_s, min(between_s, 0.0)]
        worst_s = max(jumps, key=abs)
        if abs(worst_s) <= _CLOCK_S:
            return spent_s, None
        way = "ahead" if worst_s > 0 else "back"
        return spent_s, f"the clock was set {way} by {abs(worst_s):.0f} s; {spent_s:.0f} s count"

    def _span(self, log: Log) -> tuple[Event, Event] | None:
        """The first and last event of an attempt, once the worker had begun."""
        begun = next((event for event in log.events if event.kind == "worker"), None)
        return None if begun is None else (begun, log.events[-1])

    def _events(self) -> Iterator[Event]:
        return (event for log in self.logs for event in log.events)
