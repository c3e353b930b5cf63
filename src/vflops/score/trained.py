"""What a training job's logs say together: one story over all attempts."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from vflops.record.events import Event, Log
from vflops.record.training import (
    PHASES,
    WORK_PHASES,
    Evaluated,
    Finished,
    JobRecord,
    JobStarted,
    KernelsProfiled,
    KernelTime,
    Progressed,
    Resumed,
    Standing,
)

_STANDINGS: dict[str, type[Standing]] = {
    "progress": Progressed,
    "evaluation": Evaluated,
    "finished": Finished,
}
"""The events that say where training stands."""


@dataclass(frozen=True)
class Attempt:
    """One attempt at a job, as far as it got."""

    log: Log

    @cached_property
    def _last(self) -> Standing | None:
        for event in reversed(self.log.events):
            if event.kind in _STANDINGS:
                return event.payload(_STANDINGS[event.kind])
        return None

    @property
    def phases(self) -> dict[str, float]:
        """Seconds in each phase, up to the last note of it."""
        return self._last.phases if self._last else dict.fromkeys(PHASES, 0.0)

    @property
    def wall_s(self) -> float:
        """Seconds from the start of its processes to the last note."""
        return sum(self.phases.values())

    @property
    def samples(self) -> int:
        """Samples of the job that were trained on when it ended."""
        return self._last.samples if self._last else self.first_sample

    @property
    def first_sample(self) -> int:
        """Samples of the job that earlier attempts had done."""
        resumed = self._first("resumed")
        return resumed.payload(Resumed).samples if resumed else 0

    @property
    def span_s(self) -> tuple[float, float] | None:
        """From the first step to the last note, by the clock of the events."""
        begun = self._first("job")
        noted = [event.time_s for event in self.log.events if event.kind in _STANDINGS]
        if begun is None or not noted or noted[-1] <= begun.time_s:
            return None
        return begun.time_s, noted[-1]

    def _first(self, kind: str) -> Event | None:
        return next((event for event in self.log.events if event.kind == kind), None)


@dataclass(frozen=True)
class TimedEvaluation:
    """An evaluation, and the seconds of the whole job before it was done."""

    evaluated: Evaluated
    time_s: float


@dataclass(frozen=True)
class Trained:
    """A training job, read from its logs."""

    record: JobRecord
    logs: tuple[Log, ...]

    @cached_property
    def attempts(self) -> tuple[Attempt, ...]:
        """All attempts, in order."""
        return tuple(Attempt(log) for log in self.logs)

    @cached_property
    def started(self) -> JobStarted | None:
        """What ran, by the newest attempt."""
        events = self._events("job")
        return events[-1].payload(JobStarted) if events else None

    @property
    def finished(self) -> Finished | None:
        """How it ended; None when it did not."""
        events = self._events("finished")
        return events[-1].payload(Finished) if events else None

    @cached_property
    def evaluations(self) -> list[TimedEvaluation]:
        """Every evaluation in the order of its step, the newest where one was done again."""
        found: dict[int, TimedEvaluation] = {}
        before_s = 0.0
        for attempt in self.attempts:
            for event in attempt.log.events:
                if event.kind == "evaluation":
                    each = event.payload(Evaluated)
                    time_s = before_s + sum(each.phases.values())
                    found[each.step] = TimedEvaluation(each, time_s)
            before_s += attempt.wall_s
        return [found[step] for step in sorted(found)]

    @cached_property
    def progress(self) -> list[tuple[float, Progressed]]:
        """Where training stood, with the seconds of the whole job before it."""
        found: list[tuple[float, Progressed]] = []
        before_s = 0.0
        for attempt in self.attempts:
            for event in attempt.log.events:
                if event.kind == "progress":
                    each = event.payload(Progressed)
                    found.append((before_s + sum(each.phases.values()), each))
            before_s += attempt.wall_s
        return found

    @cached_property
    def phases(self) -> dict[str, float]:
        """Seconds in each phase over all attempts."""
        return {
            phase: sum(attempt.phases.get(phase, 0.0) for attempt in self.attempts)
            for phase in PHASES
        }

    @property
    def wall_s(self) -> float:
        """Seconds of all attempts."""
        return sum(self.phases.values())

    @property
    def work_s(self) -> float:
        """Seconds that FLOPS are divided by: training, waiting for data, checkpointing."""
        return sum(self.phases[phase] for phase in WORK_PHASES)

    @property
    def samples_trained(self) -> int:
        """Samples that the model was trained on, each place of the stream once."""
        return self.attempts[-1].samples if self.attempts else 0

    @property
    def samples_redone(self) -> int:
        """Samples that were lost with an attempt and trained on again."""
        done = sum(attempt.samples - attempt.first_sample for attempt in self.attempts)
        return done - self.samples_trained

    @property
    def samples_evaluated(self) -> int:
        """Samples of all evaluations that count."""
        return sum(each.evaluated.evaluated for each in self.evaluations)

    @property
    def kernels(self) -> tuple[KernelTime, ...]:
        """Shares of the kinds of kernels, where they were profiled."""
        events = self._events("kernels")
        return events[-1].payload(KernelsProfiled).kernels if events else ()

    def _events(self, kind: str) -> list[Event]:
        return [event for log in self.logs for event in log.events if event.kind == kind]
