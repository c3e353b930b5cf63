"""What the logs of a search say together: every candidate, and the work that was done by when."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from vflops.automl.record import (
    CandidateBegun,
    CandidateFailed,
    CandidateTrained,
    Turn,
    WorkerBegun,
)
from vflops.record.events import Event, Log
from vflops.record.training import Evaluated, Standing
from vflops.score.trained import STANDINGS

State = Literal["training", "trained", "failed", "cut"]


@dataclass(frozen=True)
class Note:
    """Where a candidate stood at a moment."""

    utc_s: float
    samples: int
    """Trained on, each place of the stream once."""
    evaluated: int
    """In all evaluations up to then."""
    quality: float | None
    """Of the evaluation that was just made."""
    epoch: float


@dataclass
class Story:
    """One candidate, over all attempts of the worker that trained it."""

    begun: CandidateBegun
    worker: int
    began_s: float
    state: State = "training"
    notes: list[Note] = field(default_factory=list)
    ended_s: float | None = None
    trained: CandidateTrained | None = None
    message: str | None = None
    idle_s: float = 0.0
    """Before its first step, since the end of the candidate before: waiting, and building."""

    @property
    def turn(self) -> Turn:
        """Its place in the search."""
        return Turn.named(self.begun.candidate)

    @property
    def samples(self) -> int:
        """Trained on."""
        return max((note.samples for note in self.notes), default=0)

    @property
    def evaluated(self) -> int:
        """In all evaluations."""
        return max((note.evaluated for note in self.notes), default=0)

    @property
    def ops(self) -> int:
        """Of training and of evaluation."""
        return self.samples * self.begun.ops_total + self.evaluated * self.begun.ops_forward

    def ops_by(self, utc_s: float) -> int:
        """Operations that were done by then, charged by completed steps."""
        samples = evaluated = 0
        for note in self.notes:
            if note.utc_s > utc_s:
                break
            samples, evaluated = max(samples, note.samples), max(evaluated, note.evaluated)
        return samples * self.begun.ops_total + evaluated * self.begun.ops_forward

    @property
    def curve(self) -> list[tuple[float, float]]:
        """Epoch and accuracy of every evaluation."""
        return [(note.epoch, note.quality) for note in self.notes if note.quality is not None]


@dataclass(frozen=True)
class Search:
    """A whole search, read from its workers' logs."""

    workers: Sequence[Sequence[Log]]
    """The logs of each worker, by attempt."""
    offsets_s: Sequence[float] = ()
    """How far each worker's clock is ahead of the run's."""

    @cached_property
    def candidates(self) -> list[Story]:
        """In the order of their turns."""
        found = [story for worker in range(len(self.workers)) for story in self._stories(worker)]
        return sorted(found, key=lambda story: story.begun.candidate)

    @cached_property
    def span_s(self) -> tuple[float, float] | None:
        """From the first worker's beginning to the last event of a candidate."""
        begins = [
            event.utc_s - self._offset(worker)
            for worker, logs in enumerate(self.workers)
            for log in logs[:1]
            for event in log.events
            if event.kind == "worker"
        ]
        ends = [note.utc_s for story in self.candidates for note in story.notes[-1:]]
        return (min(begins), max(ends)) if begins and ends else None

    @property
    def clock_faults(self) -> list[str]:
        """What workers said of their clocks."""
        begins = (e for logs in self.workers for log in logs for e in log.events)
        told = (e.payload(WorkerBegun).clock for e in begins if e.kind == "worker")
        return [line for line in told if line]

    def best_by(self, utc_s: float) -> float | None:
        """The best accuracy of all evaluations by then."""
        known = (
            note.quality
            for story in self.candidates
            for note in story.notes
            if note.quality is not None and note.utc_s <= utc_s
        )
        return max(known, default=None)

    def _offset(self, worker: int) -> float:
        return self.offsets_s[worker] if self.offsets_s else 0.0

    def _stories(self, worker: int) -> Iterator[Story]:
        """The candidates of one worker; one that was gone on with after a death is one."""
        stories: dict[str, Story] = {}
        now: Story | None = None
        offset_s = self._offset(worker)
        free_s: float | None = None
        for event in (event for log in self.workers[worker] for event in log.events):
            utc_s = event.utc_s - offset_s
            if event.kind == "worker":
                free_s = utc_s
            elif event.kind == "candidate":
                begun = event.payload(CandidateBegun)
                now = stories.setdefault(begun.candidate, Story(begun, worker, utc_s))
                now.idle_s += utc_s - free_s if free_s is not None else 0.0
            elif now is not None:
                _take(now, event, utc_s)
                free_s = utc_s
        return iter(stories.values())


def _take(story: Story, event: Event, utc_s: float) -> None:
    """Add an event of a candidate to its story."""
    if event.kind in STANDINGS:
        story.notes.append(_note(story, event.payload(STANDINGS[event.kind]), utc_s))
    elif event.kind == "candidate-trained":
        story.trained, story.state = event.payload(CandidateTrained), "trained"
    elif event.kind == "candidate-failed":
        story.message, story.state = event.payload(CandidateFailed).message, "failed"
    elif event.kind == "candidate-cut":
        story.state = "cut"
    if event.kind.startswith("candidate-"):
        story.ended_s = utc_s


def _note(story: Story, standing: Standing, utc_s: float) -> Note:
    """An evaluation that a later attempt repeats counts once."""
    quality, evaluated = None, story.evaluated
    if isinstance(standing, Evaluated):
        known = {note.epoch for note in story.notes if note.quality is not None}
        quality = standing.quality
        evaluated += 0 if standing.epoch in known else standing.evaluated
    return Note(utc_s, standing.samples, evaluated, quality, standing.epoch)
