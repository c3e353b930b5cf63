"""A training job, read from the logs of all its attempts."""

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
"""The events that report how far training has got."""


@dataclass(frozen=True)
class Attempt:
    """One attempt at a job."""

    log: Log

    @cached_property
    def points(self) -> tuple[ProgressPoint, ...]:
        """All progress events, in order."""
        return tuple(
            event.payload(PROGRESS_EVENTS[event.kind])
            for event in self.log.events
            if event.kind in PROGRESS_EVENTS
        )

    @cached_property
    def _last(self) -> ProgressPoint | None:
        for event in reversed(self.log.events):  # a score needs only this one, and a day has 86 400
            if event.kind in PROGRESS_EVENTS:
                return event.payload(PROGRESS_EVENTS[event.kind])
        return None

    @property
    def has_progress(self) -> bool:
        """Whether it has a progress event."""
        return self._last is not None

    @property
    def began_s(self) -> float | None:
        """When its processes began, by the clock of the events; None without a progress event."""
        for event in self.log.events:
            if event.kind in PROGRESS_EVENTS:
                return event.time_s - sum(
                    event.payload(PROGRESS_EVENTS[event.kind]).phases.values()
                )
        return None

    @property
    def phases(self) -> dict[str, float]:
        """Seconds in each phase, up to the last progress event."""
        return self._last.phases if self._last else dict.fromkeys(PHASES, 0.0)

    @property
    def wall_s(self) -> float:
        """Seconds from the start of its processes to the last progress event."""
        return sum(self.phases.values())

    @property
    def samples(self) -> int:
        """Samples that the job had trained on when the attempt ended."""
        return self._last.samples if self._last else self.first_sample

    @property
    def samples_compiling(self) -> int:
        """Its samples whose steps compiled."""
        return self._last.samples_compiling if self._last else 0

    @property
    def first_sample(self) -> int:
        """Samples that earlier attempts had trained on."""
        return self._resumed.samples if self._resumed else 0

    @property
    def first_step(self) -> int:
        """The step of the checkpoint that it resumed from; 0 without one."""
        return self._resumed.step if self._resumed else 0

    @cached_property
    def _resumed(self) -> Resumed | None:
        event = self._first("resumed")
        return event.payload(Resumed) if event else None

    @property
    def span_s(self) -> tuple[float, float] | None:
        """From the first step to the last progress event, by the clock of the events."""
        events = self._edges
        return (events[0].time_s, events[1].time_s) if events else None

    @property
    def span_utc_s(self) -> tuple[float, float] | None:
        """The same as Unix time of the node that wrote the log."""
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
    """An evaluation, and the seconds that the whole job had taken when it was done."""

    evaluated: Evaluated
    time_s: float


@dataclass(frozen=True)
class Exhibit:
    """A job's data for the report: its expected path, and its event."""

    path: Path
    payload: Exhibited


@dataclass(frozen=True)
class TrainedJob:
    """A training job, read from its logs."""

    record: JobRecord
    logs: tuple[Log, ...]
    folders: tuple[Path, ...] = ()
    """The folder of each log; empty if no other files are needed."""

    @cached_property
    def attempts(self) -> tuple[Attempt, ...]:
        """All attempts, in order."""
        return tuple(Attempt(log) for log in self.logs)

    @cached_property
    def started(self) -> JobStarted | None:
        """What ran, from the newest attempt."""
        events = self._events("job")
        return events[-1].payload(JobStarted) if events else None

    @property
    def finished(self) -> Finished | None:
        """How training ended; None if it has not."""
        events = self._events("finished")
        return events[-1].payload(Finished) if events else None

    @cached_property
    def evaluations(self) -> list[TimedEvaluation]:
        """Every evaluation that counts, in order; one repeated after a resume counts once."""
        by_step: dict[int, TimedEvaluation] = {}
        before_s = 0.0
        for attempt in self.attempts:
            if attempt.has_progress:  # what followed its checkpoint was lost; the time still counts
                by_step = {s: e for s, e in by_step.items() if s <= attempt.first_step}
            for event in attempt.log.events:
                if event.kind == "evaluation":
                    evaluated = event.payload(Evaluated)
                    time_s = before_s + sum(evaluated.phases.values())
                    by_step[evaluated.step] = TimedEvaluation(evaluated, time_s)
            before_s += attempt.wall_s
        return [by_step[step] for step in sorted(by_step)]

    @cached_property
    def progress(self) -> list[tuple[float, Progressed]]:
        """The progress events, with the seconds that the whole job had taken."""
        timed: list[tuple[float, Progressed]] = []
        before_s = 0.0
        for attempt in self.attempts:
            for event in attempt.log.events:
                if event.kind == "progress":
                    point = event.payload(Progressed)
                    timed.append((before_s + sum(point.phases.values()), point))
            before_s += attempt.wall_s
        return timed

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
        """Samples that the model was trained on; repeated ones count once."""
        # An attempt that was killed before its first progress event changed nothing.
        return next((past.samples for past in reversed(self.attempts) if past.has_progress), 0)

    @property
    def samples_compiling(self) -> int:
        """Samples whose steps compiled; their time is not working time."""
        return sum(attempt.samples_compiling for attempt in self.attempts)

    @property
    def samples_redone(self) -> int:
        """Samples that were lost with an attempt and trained on again."""
        noted = [attempt for attempt in self.attempts if attempt.has_progress]
        # A checkpoint can be newer than the attempt's last progress event; it counts all the same.
        kept = [attempt.first_sample for attempt in noted[1:]] + [0]
        done = sum(
            max(attempt.samples, later) - attempt.first_sample
            for attempt, later in zip(noted, kept, strict=False)
        )
        return done - self.samples_trained

    @property
    def devices(self) -> int:
        """Devices whose ceilings bound it: the CPU as one, or one accelerator per rank."""
        started = self.started
        return 1 if started is None or started.device == "cpu" else started.ranks

    @property
    def samples_evaluated(self) -> int:
        """Samples of all evaluations that count."""
        return sum(timed.evaluated.evaluated for timed in self.evaluations)

    @property
    def kernels(self) -> tuple[KernelTime, ...]:
        """Shares of the kinds of kernels, if they were profiled."""
        events = self._events("kernels")
        return events[-1].payload(KernelsProfiled).kernels if events else ()

    @property
    def exhibits(self) -> list[Exhibit]:
        """The data of each attempt for the report, in order; the last file of each attempt."""
        exhibits: list[Exhibit] = []
        for log, folder in zip(self.logs, self.folders, strict=False):
            events = [event for event in log.events if event.kind == "exhibit"]
            if events:
                payload = events[-1].payload(Exhibited)
                exhibits.append(Exhibit(folder / payload.file, payload))
        return exhibits

    @property
    def exhibit(self) -> Exhibit | None:
        """The newest data for the report; None without any."""
        exhibits = self.exhibits
        return exhibits[-1] if exhibits else None

    @property
    def tested(self) -> Tested | None:
        """The quality on the test set; None without one."""
        events = self._events("tested")
        return events[-1].payload(Tested) if events else None

    def _events(self, kind: str) -> list[Event]:
        return [event for log in self.logs for event in log.events if event.kind == kind]
