"""What a worker's earlier attempts left: its time that is spent, a candidate half done."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from vflops.automl.record import CandidateBegun, Turn
from vflops.record.events import Event, Log
from vflops.record.training import Evaluated, Finished

_ENDS = ("candidate-trained", "candidate-failed", "candidate-cut")


@dataclass
class Half:
    """A candidate that an earlier attempt began and did not end."""

    turn: Turn
    tries: int = 0
    """Attempts that died over it since its newest checkpoint; one that was stopped did not."""
    evaluations: list[Evaluated] = field(default_factory=list)
    finished: Finished | None = None


@dataclass(frozen=True)
class Past:
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

    def half(self) -> Half | None:
        """The candidate to go on with, if there is one."""
        found: Half | None = None
        for event in self._events():
            if event.kind == "candidate":
                turn = Turn.named(event.payload(CandidateBegun).candidate)
                found = found if found and found.turn == turn else Half(turn)
                found.tries += 1
            elif event.kind in _ENDS:
                found = None
            elif found is not None and event.kind in ("checkpoint", "stopped"):
                found.tries = 0
            elif found is not None and event.kind == "evaluation":
                found.evaluations.append(event.payload(Evaluated))
            elif found is not None and event.kind == "finished":
                found.finished = event.payload(Finished)
        return found

    def spent_s(self, now: datetime | None = None) -> tuple[float, str | None]:
        """Seconds since the worker first began; a line where its clock cannot be believed.

        The time between attempts counts: it is lost to the benchmark too. A clock that was set back
        is told by the attempts' own monotonic clocks, which then stand in for it.
        """
        begins = [event for event in self._events() if event.kind == "worker"]
        if not begins:
            return 0.0, None
        by_clock = ((now or datetime.now(UTC)).timestamp()) - begins[0].utc_s
        spans = ((log.events[0].time_s, log.events[-1].time_s) for log in self.logs if log.events)
        worked = sum(end_s - start_s for start_s, end_s in spans)
        if by_clock < worked - 1:
            line = f"the clock was set back: {by_clock:.0f} s since the worker began, in which it"
            return worked, f"{line} worked {worked:.0f} s; the time between its attempts is lost"
        return max(by_clock, worked), None

    def _events(self) -> Iterator[Event]:
        return (event for log in self.logs for event in log.events)
