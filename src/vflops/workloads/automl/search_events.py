"""Data that the workers of a search write: proposals, claims, and event payloads."""

from __future__ import annotations

import re
from typing import ClassVar, Literal

from pydantic import Field

from vflops.errors import FolderError
from vflops.record.files.document import Data, Document
from vflops.record.formats.batch_ops import BatchOps
from vflops.record.formats.bounded_numbers import Index, NonNegative, Operations, Positive
from vflops.workloads.automl.architecture.layer_graph import Architecture
from vflops.workloads.automl.architecture.morphs import Morph

RULES = "aiperf"
"""The convention by which the operations of a search are counted."""
_WORKER_LIMIT = 1 << 20
"""An upper limit on the number of workers of a search."""
_NAME = re.compile(r"r([0-9]{1,9})-w([0-9]{1,6})")


class Turn(Data):
    """A round and a worker, both counted from 0, which together identify a candidate."""

    round: Index
    worker: int = Field(ge=0, lt=_WORKER_LIMIT)

    @property
    def name(self) -> str:
        """The name of the candidate and of its files; names sort like turns."""
        return f"r{self.round:05d}-w{self.worker:05d}"

    @classmethod
    def named(cls, name: str) -> Turn:
        """Return the turn of a candidate's name; raise ``FolderError`` if it is not one."""
        match = _NAME.fullmatch(name)
        turn = cls(round=int(match[1]), worker=int(match[2])) if match else None
        if turn is None or turn.name != name:
            raise FolderError(f"{name!r} is not the name of a candidate, such as r00003-w00001")
        return turn

    @property
    def number(self) -> int:
        """The turn as one number, which ranks can exchange."""
        return self.round * _WORKER_LIMIT + self.worker

    @classmethod
    def numbered(cls, number: int) -> Turn:
        """Return the turn of a number."""
        return cls(round=number // _WORKER_LIMIT, worker=number % _WORKER_LIMIT)


class Hyperparameters(Data):
    """The hyperparameters of a candidate."""

    batch: Positive
    kernel: Positive | None = None
    """The smallest kernel size from 3 up; None if it was not tuned."""


class Candidate(Document):
    """``buffer/<candidate>.json``: a proposed candidate."""

    schema_name: ClassVar[str] = "vflops.candidate"

    turn: Turn
    architecture: Architecture
    parent: str | None
    """The candidate whose weights it may start from; None for the untrained starting network."""
    morphs: tuple[Morph, ...]
    """The steps from the parent, or from the starting network, to this one."""
    hyper: Hyperparameters
    tuned: bool
    """Whether tuning chose ``hyper``."""
    epochs: NonNegative
    patience: NonNegative | None
    """Evaluations without improvement after which training stops; None for no limit."""
    end_epoch: NonNegative | None = None
    """In a replay: the epoch after which training stops, as it did in the search."""
    known: NonNegative
    """The number of results that the proposal is based on."""
    known_sha256: str
    """A hash of those results; it is the same in a repeated search."""
    took_s: float
    """Seconds that it took to propose, on one core."""
    figures: dict[str, float] = Field(default_factory=dict)
    """What the search predicted for it."""


class Claim(Document):
    """``claims/<candidate>.json``: the worker that trains it, the first to create this file."""

    schema_name: ClassVar[str] = "vflops.candidate-claim"

    worker: Index
    job: Index


class TurnPassed(Document):
    """``buffer/<candidate>.passed.json``: a turn that the other workers no longer wait for.

    As ``buffer/<candidate>.last.json`` it covers all later turns too: the worker itself writes it
    when its search finds nothing more.
    """

    schema_name: ClassVar[str] = "vflops.turn-passed"

    turn: Turn
    by: Index
    """The worker that gave up waiting."""
    waited_s: float


class WorkerBegun(Data):
    """A worker begins, or resumes after an attempt that died."""

    worker: Index
    left_s: float
    """How many seconds of its time are left."""
    clock: str | None = None
    """What is wrong with the machine's clock, if anything."""
    memory_bytes: int | None = Field(default=None, ge=1)
    """Memory that a rank can use, measured by the first attempt; tuning offers no larger batch."""


class WorkerWaiting(Data):
    """A heartbeat of a worker that waits for a candidate, so that its turns are not given up."""

    worker: Index


class ConvergedEnd(Document):
    """``buffer/converged.json``: the search ends, because its score has converged.

    The first worker that finds so creates this file, and all workers end when they see it.
    """

    schema_name: ClassVar[str] = "vflops.search-converged"

    worker: Index
    """The worker that found it."""
    utc_s: float
    """When, by the clock of its node."""
    duration_s: float
    """Seconds since the first worker began."""
    ops_per_s: float
    """The score at this time."""
    variation: float
    """How much the score varied in the last fifth of the time: (largest − smallest) / mean."""


class SearchEnded(Data):
    """A worker ends early: its search found nothing more within the limits, or has converged."""

    worker: Index
    message: str
    converged: ConvergedEnd | None = None
    """The decision, if the search has converged."""


class CandidateBegun(Data):
    """A worker begins or resumes the training of a candidate."""

    candidate: str
    digest: str
    """The digest of the architecture."""
    proposal_sha256: str
    parent: str | None
    inherited: bool
    """Whether it starts from its parent's weights."""
    epochs: NonNegative
    batch: Positive
    parameters: NonNegative
    ops_forward: Operations
    """Operations per sample, by the convention that scores a search, rounded down."""
    ops_total: Operations
    batch_ops: BatchOps | None = None
    """The exact operations of a batch of one rank, which are charged; None in older runs."""
    waited_s: float
    """Time spent waiting for the proposal."""
    built_s: float
    """Time spent building the model and loading its parent's weights."""
    compiled: bool = False
    """Whether its steps are compiled; otherwise they are recorded if possible."""


class CandidateTrained(Data):
    """A candidate's training has finished; the search may use its result."""

    candidate: str
    accuracy: float
    """The best accuracy of its evaluations."""
    predicted: float | None = None
    """In a warm-up round: the accuracy predicted for the full number of epochs."""
    epochs: NonNegative
    """Epochs that were trained and evaluated."""
    reason: Literal["epochs", "patience", "target"]
    inherited: bool
    hyper: Hyperparameters
    weights_sha256: str | None = None

    @property
    def search_accuracy(self) -> float:
        """The accuracy that the search uses."""
        return self.accuracy if self.predicted is None else self.predicted


class CandidateFailed(Data):
    """A candidate could not be trained; the search continues without it."""

    candidate: str
    message: str
    samples: NonNegative = 0
    """Samples of the completed steps; their operations count."""
    out_of_memory: bool = False
    """Whether it needs more memory than the device has, which tuning avoids."""


class CandidateCut(Data):
    """The time was up during a candidate's training: its steps count, but it has no result."""

    candidate: str
    samples: NonNegative
