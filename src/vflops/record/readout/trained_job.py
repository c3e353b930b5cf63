"""What a training job's logs say together: one story over all attempts."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from vflops.record.formats.job import JobRecord
from vflops.record.formats.job_events import (
    PHASES,
    WORK_PHASES,
    Evaluated,
    Exhibited,
    Finished,
    JobStarted,
    KernelsProfiled,
    KernelTime,
    Progressed,
    ProgressPoint,
    Resumed,
    Tested,
)
from vflops.record.log.events import Event, Log

PROGRESS_EVENTS: dict[str, type[ProgressPoint]] = {
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
    def notes(self) -> tuple[ProgressPoint, ...]:
        """Every note of where training stood, in order."""
        return tuple(
            event.payload(PROGRESS_EVENTS[event.kind])
            for event in self.log.events
            if event.kind in PROGRESS_EVENTS
        )

    @cached_property
    def _last(self) -> ProgressPoint | None:
        for event in reversed(self.log.events):  # a score needs no other: a day has 86 400 notes
            if event.kind in PROGRESS_EVENTS:
                return event.payload(PROGRESS_EVENTS[event.kind])
        return None

    @property
    def is_noted(self) -> bool:
        """Whether it got as far as a note of where training stood."""
        return self._last is not None

    @property
    def began_s(self) -> float | None:
        """When its processes began, by the clock of the events; None without a note."""
        for event in self.log.events:
            if event.kind in PROGRESS_EVENTS:
                return event.time_s - sum(
                    event.payload(PROGRESS_EVENTS[event.kind]).phases.values()
                )
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
    def samples_compiling(self) -> int:
        """Of its samples, those whose steps compiled."""
        return self._last.samples_compiling if self._last else 0

    @property
    def first_sample(self) -> int:
        """Samples of the job that earlier attempts had done."""
        return self._resumed.samples if self._resumed else 0

    @property
    def first_step(self) -> int:
        """The step of the checkpoint that it went on from; 0 without one."""
        return self._resumed.step if self._resumed else 0

    @cached_property
    def _resumed(self) -> Resumed | None:
        event = self._first("resumed")
        return event.payload(Resumed) if event else None

    @property
    def span_s(self) -> tuple[float, float] | None:
        """From the first step to the last note, by the clock of the events."""
        events = self._edges
        return (events[0].time_s, events[1].time_s) if events else None

    @property
    def span_utc_s(self) -> tuple[float, float] | None:
        """The same by the clock on the wall of the node that wrote the log."""
        events = self._edges
        return (events[0].utc_s, events[1].utc_s) if events else None

    @cached_property
    def _edges(self) -> tuple[Event, Event] | None:
        begun = self._first("job")
        noted = [event for event in self.log.events if event.kind in PROGRESS_EVENTS]
        if begun is None or not noted or noted[-1].time_s <= begun.time_s:
            return None
        return begun, noted[-1]

    def _first(self, kind: str) -> Event | None:
        return next((event for event in self.log.events if event.kind == kind), None)


@dataclass(frozen=True)
class TimedEvaluation:
    """An evaluation, and the seconds of the whole job before it was done."""

    evaluated: Evaluated
    time_s: float


@dataclass(frozen=True)
class Exhibit:
    """What a job left to be shown: where it must be, and what the log says of it."""

    path: Path
    payload: Exhibited


@dataclass(frozen=True)
class TrainedJob:
    """A training job, read from its logs."""

    record: JobRecord
    logs: tuple[Log, ...]
    folders: tuple[Path, ...] = ()
    """Where each of the logs is; empty where nothing beside them is asked for."""

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
        """Every evaluation that counts, in order; what a later attempt did again counts once."""
        found: dict[int, TimedEvaluation] = {}
        before_s = 0.0
        for attempt in self.attempts:
            if attempt.is_noted:  # what was after its checkpoint was lost, and its time is not
                found = {step: e for step, e in found.items() if step <= attempt.first_step}
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
        # An attempt that was killed before its first note changed nothing.
        return next((each.samples for each in reversed(self.attempts) if each.is_noted), 0)

    @property
    def samples_compiling(self) -> int:
        """Samples whose steps compiled: their time is not that of work."""
        return sum(attempt.samples_compiling for attempt in self.attempts)

    @property
    def samples_redone(self) -> int:
        """Samples that were lost with an attempt and trained on again."""
        noted = [attempt for attempt in self.attempts if attempt.is_noted]
        # A checkpoint can be newer than the last note before the end: it was reached all the same.
        kept = [attempt.first_sample for attempt in noted[1:]] + [0]
        done = sum(
            max(attempt.samples, later) - attempt.first_sample
            for attempt, later in zip(noted, kept, strict=False)
        )
        return done - self.samples_trained

    @property
    def devices(self) -> int:
        """Devices whose ceilings bound it: the processors as one, or an accelerator a rank."""
        started = self.started
        return 1 if started is None or started.device == "cpu" else started.ranks

    @property
    def samples_evaluated(self) -> int:
        """Samples of all evaluations that count."""
        return sum(each.evaluated.evaluated for each in self.evaluations)

    @property
    def kernels(self) -> tuple[KernelTime, ...]:
        """Shares of the kinds of kernels, where they were profiled."""
        events = self._events("kernels")
        return events[-1].payload(KernelsProfiled).kernels if events else ()

    @property
    def exhibits(self) -> list[Exhibit]:
        """What each attempt left to be shown, in order; of one attempt the last that it wrote."""
        found: list[Exhibit] = []
        for log, folder in zip(self.logs, self.folders, strict=False):
            events = [event for event in log.events if event.kind == "exhibit"]
            if events:
                payload = events[-1].payload(Exhibited)
                found.append(Exhibit(folder / payload.file, payload))
        return found

    @property
    def exhibit(self) -> Exhibit | None:
        """What the newest attempt that left something to be shown left; None without any."""
        exhibits = self.exhibits
        return exhibits[-1] if exhibits else None

    @property
    def tested(self) -> Tested | None:
        """The quality on samples that were kept apart; None without any."""
        events = self._events("tested")
        return events[-1].payload(Tested) if events else None

    def _events(self, kind: str) -> list[Event]:
        return [event for log in self.logs for event in log.events if event.kind == kind]
