"""The course of a training run in wall-clock time, as MLPerf logs need it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from vflops.record.formats.job_events import Evaluated
from vflops.record.log.events import Event
from vflops.record.readout.trained_job import Attempt, TrainedJob


@dataclass(frozen=True)
class TimedEvaluation:
    """An evaluation with its start, its end and the place in the log."""

    evaluated: Evaluated
    start_ms: int
    stop_ms: int
    source: str


@dataclass(frozen=True)
class Course:
    """A finished training run, with times as Unix time in milliseconds.

    Times within an attempt are from the monotonic clock; interruptions are included.
    """

    trained: TrainedJob
    run: Path
    """The run folder."""

    @cached_property
    def began_ms(self) -> int:
        """When the first processes started."""
        attempt = self.trained.attempts[0]
        return self._ms(0, _began_s(attempt))

    @cached_property
    def run_ms(self) -> int:
        """When the first sample could be read, which is before compilation and the first step."""
        number, event = self._events("job")[0]
        return max(self._ms(number, event.time_s), self.began_ms)

    @cached_property
    def evaluations(self) -> tuple[TimedEvaluation, ...]:
        """The evaluations up to the first that reached the target."""
        evaluations: list[TimedEvaluation] = []
        for number, event, evaluated, took_s in self._counted_evaluations():
            stop_ms = self._ms(number, event.time_s)
            start_ms = max(self._ms(number, event.time_s - took_s), self.run_ms)
            evaluations.append(TimedEvaluation(evaluated, start_ms, stop_ms, self.source(event)))
            if self._reaches_target(evaluated.quality):
                break
        return tuple(evaluations)

    @property
    def reached(self) -> bool:
        """Whether the target was reached."""
        return bool(self.evaluations) and self._reaches_target(
            self.evaluations[-1].evaluated.quality
        )

    @property
    def stop_ms(self) -> int:
        """When the target was reached, or else when training finished."""
        if self.reached:
            return self.evaluations[-1].stop_ms
        number, event = self._events("finished")[-1]
        return self._ms(number, event.time_s)

    def source(self, event: Event) -> str:
        """Return the file in the run folder that holds the event, and its line."""
        return event.source.removeprefix(f"{self.run}/")

    def unix_ms(self, time_s: float) -> int:
        """Return a time on the clock of the newest attempt as Unix time."""
        return self._ms(len(self.trained.attempts) - 1, time_s)

    def _reaches_target(self, quality: float) -> bool:
        goal = self.trained.record.goal
        return quality <= goal.target if goal.better == "lower" else quality >= goal.target

    def _counted_evaluations(self) -> list[tuple[int, Event, Evaluated, float]]:
        """Return the evaluations that were not lost: attempt, event, payload and seconds."""
        by_step: dict[int, tuple[int, Event, Evaluated, float]] = {}
        for number, attempt in enumerate(self.trained.attempts):
            if attempt.has_progress:  # work after its checkpoint was lost
                by_step = {step: row for step, row in by_step.items() if step <= attempt.first_step}
            before_s = 0.0
            for event in attempt.log.events:
                if event.kind == "evaluation":
                    evaluated = event.payload(Evaluated)
                    spent_s = evaluated.phases.get("evaluation", 0.0)
                    by_step[evaluated.step] = number, event, evaluated, spent_s - before_s
                    before_s = spent_s
        return [by_step[step] for step in sorted(by_step)]

    def _events(self, kind: str) -> list[tuple[int, Event]]:
        return [
            (number, event)
            for number, attempt in enumerate(self.trained.attempts)
            for event in attempt.log.events
            if event.kind == kind
        ]

    def _ms(self, attempt: int, time_s: float) -> int:
        return round(1000 * (time_s + self._clock_offsets_s[attempt]))

    @cached_property
    def _clock_offsets_s(self) -> list[float]:
        """The offset from each attempt's clock to Unix time; attempts do not overlap."""
        offsets: list[float] = []
        end_s = 0.0
        for attempt in self.trained.attempts:
            events = attempt.log.events
            if not events:
                offsets.append(0.0)
                continue
            offset_s = max(events[0].utc_s - events[0].time_s, end_s - _began_s(attempt))
            offsets.append(offset_s)
            end_s = events[-1].time_s + offset_s
        return offsets


def _began_s(attempt: Attempt) -> float:
    began_s = attempt.began_s
    return attempt.log.events[0].time_s if began_s is None else began_s
