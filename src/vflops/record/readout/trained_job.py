"""A training job, read from the logs of all its attempts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from pydantic import ValidationError

from vflops.config.training import TrainSettings
from vflops.errors import FolderError
from vflops.metrics.summation import sum_in_order
from vflops.metrics.training_time import kept_steps, training_steps
from vflops.record.formats.job import JobRecord
from vflops.record.formats.job_events import (
    PHASES,
    WORK_PHASES,
    DataRead,
    Evaluated,
    Exhibited,
    ExhibitSkipped,
    Finished,
    JobStarted,
    KernelsProfiled,
    KernelTime,
    Progressed,
    ProgressPoint,
    Resumed,
    Tested,
)
from vflops.record.formats.node import NodeRecord, node_records
from vflops.record.log.events import Event, Log

PROGRESS_EVENTS: dict[str, type[ProgressPoint]] = {
    "progress": Progressed,
    "evaluation": Evaluated,
    "finished": Finished,
}
"""The events that report the progress of training, with their types."""


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
        for event in reversed(
            self.log.events
        ):  # a score needs only the last of, say, 86,400 events
            if event.kind in PROGRESS_EVENTS:
                return event.payload(PROGRESS_EVENTS[event.kind])
        return None

    @property
    def has_progress(self) -> bool:
        """Whether the attempt has a progress event."""
        return self._last is not None

    @property
    def began_s(self) -> float | None:
        """When its processes started, by the clock of the events; None without a progress event."""
        for event in self.log.events:
            if event.kind in PROGRESS_EVENTS:
                return event.time_s - sum_in_order(
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
        return sum_in_order(self.phases.values())

    @property
    def samples(self) -> int:
        """Samples that the job had trained on when the attempt ended."""
        return self._last.samples if self._last else self.first_sample

    @property
    def samples_compiling(self) -> int:
        """Samples of the attempt whose steps included compilation."""
        return self._last.samples_compiling if self._last else 0

    @property
    def first_sample(self) -> int:
        """Samples that the job had trained on at the checkpoint from which the attempt resumed."""
        return self._resumed.samples if self._resumed else 0

    @property
    def first_step(self) -> int:
        """The step of the checkpoint that the attempt resumed from; 0 without a checkpoint."""
        return self._resumed.step if self._resumed else 0

    @cached_property
    def _resumed(self) -> Resumed | None:
        event = self._first("resumed")
        return event.payload(Resumed) if event else None

    @property
    def span_s(self) -> tuple[float, float] | None:
        """The times of the first step and the last progress event, by the clock of the events."""
        events = self.edges
        return (events[0].time_s, events[1].time_s) if events else None

    @cached_property
    def edges(self) -> tuple[Event, Event] | None:
        """The events of the first step and of the last progress; None without progress."""
        begun = self._first("job")
        with_progress = [event for event in self.log.events if event.kind in PROGRESS_EVENTS]
        if begun is None or not with_progress or with_progress[-1].time_s <= begun.time_s:
            return None
        return begun, with_progress[-1]

    def _first(self, kind: str) -> Event | None:
        return next((event for event in self.log.events if event.kind == kind), None)


@dataclass(frozen=True)
class TimedEvaluation:
    """An evaluation, and the seconds that the job had taken over all attempts when it was done."""

    evaluated: Evaluated
    time_s: float
    event: Event
    attempt: int
    """Index of the attempt that made the evaluation."""


@dataclass(frozen=True)
class Exhibit:
    """The data that a job wrote for the report: the expected path of the file, and its event."""

    path: Path
    payload: Exhibited


class NodeName(NamedTuple):
    """A node of an attempt: its name in the scheduler, and the machine that it is on."""

    name: str
    host: str


@dataclass(frozen=True)
class TrainedJob:
    """A training job, read from its logs."""

    record: JobRecord
    logs: tuple[Log, ...]
    folders: tuple[Path, ...] = ()
    """The folder of each log; empty if only the logs are needed."""
    nodes_of: Callable[[Path], tuple[NodeRecord, ...]] = field(default=node_records, compare=False)
    """Reads the records of the nodes of an attempt, given its folder."""

    @cached_property
    def attempts(self) -> tuple[Attempt, ...]:
        """All attempts, in order."""
        return tuple(Attempt(log) for log in self.logs)

    @cached_property
    def started(self) -> JobStarted | None:
        """The start event of the newest attempt; None if no attempt started."""
        events = self._events("job")
        return events[-1].payload(JobStarted) if events else None

    @property
    def finished(self) -> Finished | None:
        """How training ended; None if it has not finished."""
        events = self._events("finished")
        return events[-1].payload(Finished) if events else None

    @cached_property
    def evaluations(self) -> list[TimedEvaluation]:
        """The evaluations that count, in order.

        If a job resumes from a checkpoint, earlier evaluations after that checkpoint do not count.
        """
        by_step: dict[int, TimedEvaluation] = {}
        before_s = 0.0
        for number, attempt in enumerate(self.attempts):
            if attempt.has_progress:  # drop what was lost; its time still counts
                by_step = {
                    step: timed for step, timed in by_step.items() if step <= attempt.first_step
                }
            for event in attempt.log.events:
                if event.kind == "evaluation":
                    evaluated = event.payload(Evaluated)
                    time_s = before_s + sum_in_order(evaluated.phases.values())
                    by_step[evaluated.step] = TimedEvaluation(evaluated, time_s, event, number)
            before_s += attempt.wall_s
        return [by_step[step] for step in sorted(by_step)]

    @cached_property
    def progress(self) -> list[tuple[float, Progressed]]:
        """The regular progress reports, each with the seconds that the job had taken over all
        attempts."""
        timed: list[tuple[float, Progressed]] = []
        before_s = 0.0
        for attempt in self.attempts:
            for event in attempt.log.events:
                if event.kind == "progress":
                    point = event.payload(Progressed)
                    timed.append((before_s + sum_in_order(point.phases.values()), point))
            before_s += attempt.wall_s
        return timed

    @cached_property
    def phases(self) -> dict[str, float]:
        """Seconds in each phase over all attempts."""
        return {
            phase: sum_in_order(attempt.phases.get(phase, 0.0) for attempt in self.attempts)
            for phase in PHASES
        }

    @property
    def kept_steps(self) -> tuple[int, ...]:
        """The steps whose states the settings keep for audits; empty without any, or if the
        training has not finished."""
        finished, section = self.finished, self.record.settings.get("train", {})
        if finished is None or self.record.worker is not None or "segments" not in section:
            return ()
        try:
            train = TrainSettings.model_validate(section)
        except ValidationError as error:
            raise FolderError(f"the settings of job {self.record.job} are not valid") from error
        if not train.segments:
            return ()
        epochs = min(train.end_epoch or train.epochs, train.epochs)
        samples = self.record.data.train
        end = training_steps(epochs=epochs, samples=samples, batch_size=train.batch)
        steps = kept_steps(end=end, segments=train.segments)
        return (*(step for step in steps if step < finished.step), finished.step)

    @property
    def wall_s(self) -> float:
        """Seconds of all attempts."""
        return sum_in_order(self.phases.values())

    @property
    def work_s(self) -> float:
        """Seconds that count as work when FLOPS are computed: training, data and checkpointing."""
        return sum_in_order(self.phases[phase] for phase in WORK_PHASES)

    @property
    def samples_trained(self) -> int:
        """Samples that the model was trained on; samples repeated after a resume count once."""
        # An attempt that was killed before its first progress event changed nothing.
        return next(
            (attempt.samples for attempt in reversed(self.attempts) if attempt.has_progress), 0
        )

    @property
    def samples_compiling(self) -> int:
        """Samples whose steps included compilation, of all attempts; their time is not work."""
        return sum(attempt.samples_compiling for attempt in self.attempts)

    @property
    def samples_timed(self) -> int:
        """The samples of ``samples_trained`` whose steps did not compile.

        Like those, what was lost with an attempt counts for nothing: it was trained again.
        """
        compiling, resumed = 0, self.samples_trained
        for attempt in reversed(self.attempts):
            if attempt.has_progress:
                kept = max(resumed - attempt.first_sample, 0)
                compiling += min(attempt.samples_compiling, kept)
                resumed = min(resumed, attempt.first_sample)
        return self.samples_trained - compiling

    @property
    def samples_redone(self) -> int:
        """Samples whose training was lost with an attempt and repeated."""
        with_progress = [attempt for attempt in self.attempts if attempt.has_progress]
        # A checkpoint can be newer than the last progress event of the attempt; it still counts.
        resumed_samples = [attempt.first_sample for attempt in with_progress[1:]] + [0]
        done = sum(
            max(attempt.samples, resumed) - attempt.first_sample
            for attempt, resumed in zip(with_progress, resumed_samples, strict=False)
        )
        return done - self.samples_trained

    @cached_property
    def attempt_nodes(self) -> tuple[tuple[NodeName, ...], ...]:
        """The nodes of each attempt in ``folders``; empty for an attempt that recorded none."""
        return tuple(
            tuple(NodeName(node.name, node.host) for node in self.nodes_of(folder))
            for folder in self.folders
        )

    @property
    def nodes(self) -> tuple[NodeName, ...]:
        """The nodes of the newest attempt; empty if they are not known."""
        return self.attempt_nodes[-1] if self.attempt_nodes else ()

    @property
    def devices(self) -> int:
        """Number of devices whose ceilings bound the job: one per rank, or one per host for CPUs.

        Two nodes of a scheduler can be on one host, whose CPUs are then counted once.
        """
        started = self.started
        if started is None or started.device != "cpu":
            return started.ranks if started else 1
        return max(len({node.host for node in self.nodes}), 1)

    @property
    def samples_evaluated(self) -> int:
        """Number of samples in all evaluations that count."""
        return sum(timed.evaluated.evaluated for timed in self.evaluations)

    @property
    def kernels(self) -> tuple[KernelTime, ...]:
        """The time of each kind of kernel; empty if no steps were profiled."""
        events = self._events("kernels")
        return events[-1].payload(KernelsProfiled).kernels if events else ()

    @property
    def exhibits(self) -> list[Exhibit]:
        """The data for the report: the last file of each attempt, in order."""
        exhibits: list[Exhibit] = []
        for log, folder in zip(self.logs, self.folders, strict=False):
            events = [event for event in log.events if event.kind == "exhibit"]
            if events:
                payload = events[-1].payload(Exhibited)
                exhibits.append(Exhibit(folder / payload.file, payload))
        return exhibits

    @property
    def exhibit(self) -> Exhibit | None:
        """The newest data for the report; None if there is none."""
        exhibits = self.exhibits
        return exhibits[-1] if exhibits else None

    @property
    def exhibit_skipped(self) -> str | None:
        """Why there is no data for the report that shows what the model does; None if not said."""
        events = self._events("exhibit-skipped")
        return events[-1].payload(ExhibitSkipped).reason if events else None

    @property
    def tested(self) -> Tested | None:
        """The quality on the test set; None if the model was not tested."""
        events = self._events("tested")
        return events[-1].payload(Tested) if events else None

    @property
    def data_read(self) -> DataRead | None:
        """What the last attempt read of its data; None if its samples were not compared."""
        events = self._events("data-read")
        return events[-1].payload(DataRead) if events else None

    def _events(self, kind: str) -> list[Event]:
        return [event for log in self.logs for event in log.events if event.kind == kind]
