"""What the logs of a search say together: every candidate, and the work that was done by when."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from vflops.errors import FolderError
from vflops.record.formats.job import Evaluated
from vflops.record.log.events import Event, Log
from vflops.record.readout.trained_job import PROGRESS_EVENTS
from vflops.workloads.automl.search_events import (
    CandidateBegun,
    CandidateCut,
    CandidateFailed,
    CandidateTrained,
    Turn,
    WorkerBegun,
)

State = Literal["training", "trained", "failed", "cut"]

ENDS = ("candidate-trained", "candidate-failed", "candidate-cut")
"""What ends a candidate, told by its name."""


@dataclass(frozen=True)
class HistoryPoint:
    """Where a candidate stood at a moment."""

    utc_s: float
    ops: int
    """Of its training and its evaluations up to then, work in progress by completed steps."""
    epoch: float
    quality: float | None = None
    """Of the evaluation that was just made."""


@dataclass
class CandidateHistory:
    """One candidate, over all attempts of the worker that trained it."""

    begun: CandidateBegun
    worker: int
    began_s: float
    state: State = "training"
    notes: list[HistoryPoint] = field(default_factory=list)
    samples: int = 0
    """Trained on, each place of the stream once."""
    evaluations: dict[float, int] = field(default_factory=dict)
    """Samples of the evaluation after each epoch; one that a later attempt repeats counts once."""
    ended_s: float | None = None
    trained: CandidateTrained | None = None
    cut: CandidateCut | None = None
    message: str | None = None
    tries: int = 0
    """Attempts of its worker that worked on it."""
    _evaluated: int = 0

    @property
    def turn(self) -> Turn:
        """Its place in the search."""
        return Turn.named(self.begun.candidate)

    @property
    def evaluated(self) -> int:
        """Samples of all evaluations."""
        return self._evaluated

    @property
    def ops(self) -> int:
        """Of training and of evaluation."""
        return self.samples * self.begun.ops_total + self._evaluated * self.begun.ops_forward

    @property
    def last_s(self) -> float:
        """When it was last heard of: its end, else the last note of one that never ended."""
        return self.ended_s or (self.notes[-1].utc_s if self.notes else self.began_s)

    @property
    def curve(self) -> list[tuple[float, float]]:
        """Epoch and accuracy of every evaluation."""
        return [(note.epoch, note.quality) for note in self.notes if note.quality is not None]

    def take(self, event: Event, utc_s: float) -> None:
        """Take in an event of the candidate."""
        if event.kind in PROGRESS_EVENTS:
            standing = event.payload(PROGRESS_EVENTS[event.kind])
            self.samples = max(self.samples, standing.samples)
            quality = None
            if isinstance(standing, Evaluated):
                quality = standing.quality
                if standing.epoch not in self.evaluations:
                    self.evaluations[standing.epoch] = standing.evaluated
                    self._evaluated += standing.evaluated
            self.notes.append(HistoryPoint(utc_s, self.ops, standing.epoch, quality))
            return
        if event.kind == "candidate-trained":
            self.trained, self.state = event.payload(CandidateTrained), "trained"
        elif event.kind == "candidate-failed":
            failed = event.payload(CandidateFailed)
            self.message, self.state = failed.message, "failed"
            self._charge(failed.samples, utc_s)
        else:
            self.cut, self.state = event.payload(CandidateCut), "cut"
            self._charge(self.cut.samples, utc_s)
        self.ended_s = utc_s

    def _charge(self, samples: int, utc_s: float) -> None:
        """Count the steps that were completed since the last note."""
        if samples > self.samples:
            self.samples = samples
            epoch = self.notes[-1].epoch if self.notes else 0.0
            self.notes.append(HistoryPoint(utc_s, self.ops, epoch))


@dataclass(frozen=True)
class SearchHistory:
    """A whole search, read from its workers' logs."""

    workers: Sequence[Sequence[Log]]
    """The logs of each worker, by attempt."""
    offsets_s: Sequence[Sequence[float]] = ()
    """How far the clock of each of them is ahead of the run's; empty: not at all."""

    @cached_property
    def candidates(self) -> list[CandidateHistory]:
        """In the order of their turns; one in two workers' logs is there twice."""
        found = [story for worker in range(len(self.workers)) for story in self._stories(worker)]
        return sorted(found, key=lambda story: story.begun.candidate)

    @cached_property
    def unbuilt(self) -> dict[str, str]:
        """Why candidates failed that nobody could so much as begin to train."""
        begun = {story.begun.candidate for story in self.candidates}
        events = (e for logs in self.workers for log in logs for e in log.events)
        told = (event.data for event in events if event.kind == "candidate-failed")
        found = {str(each.get("candidate")): str(each.get("message")) for each in told}
        return {name: message for name, message in found.items() if name not in begun}

    @cached_property
    def spans_s(self) -> tuple[tuple[float, float] | None, ...]:
        """Of each worker, from its beginning to its last work, or to the end of its time.

        One that died and came back after its time only said that it had none left.
        """
        return tuple(self._span_s(worker) for worker in range(len(self.workers)))

    def _span_s(self, worker: int) -> tuple[float, float] | None:
        own = [story for story in self.candidates if story.worker == worker and story.notes]
        began_s: float | None = None
        until_s = 0.0
        ends = [story.notes[-1].utc_s for story in own]
        for event, utc_s in self._events(worker):
            if event.kind == "worker" and began_s is None:
                began_s, until_s = utc_s, utc_s + event.payload(WorkerBegun).left_s
            elif event.kind == "end" and began_s is not None:
                ends.append(min(utc_s, until_s))
        return None if began_s is None else (began_s, max(ends, default=began_s))

    @cached_property
    def span_s(self) -> tuple[float, float] | None:
        """Of all workers together; None where there was no work."""
        spans = [span for span in self.spans_s if span is not None]
        if not spans or not any(story.notes for story in self.candidates):
            return None
        return min(start_s for start_s, _ in spans), max(end_s for _, end_s in spans)

    @property
    def clock_faults(self) -> list[str]:
        """What workers said of their clocks."""
        begins = (e for logs in self.workers for log in logs for e in log.events)
        told = (e.payload(WorkerBegun).clock for e in begins if e.kind == "worker")
        return [line for line in told if line]

    def _events(self, worker: int) -> Iterator[tuple[Event, float]]:
        """The events of a worker, and when they were on the run's clock.

        An attempt's first event says when it began; after it the clock that nobody sets is asked.
        """
        for attempt, log in enumerate(self.workers[worker]):
            if log.events:
                first = log.events[0]
                offset_s = self.offsets_s[worker][attempt] if self.offsets_s else 0.0
                zero_s = first.utc_s - offset_s - first.time_s
                for event in log.events:
                    yield event, zero_s + event.time_s

    def _stories(self, worker: int) -> Iterator[CandidateHistory]:
        """The candidates of one worker; one that was gone on with after a death is one.

        What cannot be read is passed over: the check finds it.
        """
        stories: dict[str, CandidateHistory] = {}
        now: CandidateHistory | None = None
        for event, utc_s in self._events(worker):
            if event.kind == "worker":
                now = None
            elif event.kind == "candidate":
                now = None
                with suppress(FolderError):
                    begun = event.payload(CandidateBegun)
                    Turn.named(begun.candidate)
                    now = stories.setdefault(
                        begun.candidate, CandidateHistory(begun, worker, utc_s)
                    )
                    now.tries += 1
            elif event.kind in ENDS:
                # Told by name: one that cannot be built fails before it is begun.
                story = stories.get(str(event.data.get("candidate")))
                if story is not None:
                    with suppress(FolderError):
                        story.take(event, utc_s)
                    now = None
            elif now is not None and event.kind in PROGRESS_EVENTS:
                with suppress(FolderError):
                    now.take(event, utc_s)
        return iter(stories.values())
