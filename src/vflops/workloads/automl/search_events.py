"""What the workers of a search write down: proposals, and the payloads of their events."""

from __future__ import annotations

import re
from typing import ClassVar, Literal

from pydantic import Field

from vflops.errors import FolderError
from vflops.record.files.document import Data, Document
from vflops.workloads.automl.architecture.layer_graph import Architecture
from vflops.workloads.automl.architecture.morphs import Morph

RULES = "aiperf"
"""The rule set that a search's operations are counted by."""
_MOST_WORKERS = 1 << 20
"""More than any search has."""
_NAME = re.compile(r"r([0-9]{1,9})-w([0-9]{1,6})")


class Turn(Data):
    """A worker's place in the search: its round and itself, both from 0; names a candidate."""

    round: int = Field(ge=0)
    worker: int = Field(ge=0, lt=_MOST_WORKERS)

    @property
    def name(self) -> str:
        """Of the candidate, and of its files; sorts as turns do."""
        return f"r{self.round:05d}-w{self.worker:05d}"

    @classmethod
    def named(cls, name: str) -> Turn:
        """The turn of a candidate's name."""
        found = _NAME.fullmatch(name)
        turn = cls(round=int(found[1]), worker=int(found[2])) if found else None
        if turn is None or turn.name != name:
            raise FolderError(f"{name!r} is no candidate's name: r00003-w00001 is one")
        return turn

    @property
    def number(self) -> int:
        """The turn as one number, which ranks can tell each other."""
        return self.round * _MOST_WORKERS + self.worker

    @classmethod
    def numbered(cls, number: int) -> Turn:
        """The turn of a number."""
        return cls(round=number // _MOST_WORKERS, worker=number % _MOST_WORKERS)


class Hyperparameters(Data):
    """What is tuned."""

    batch: int
    kernel: int | None = None
    """The least that kernels of 3 and more have; None: it was not tuned."""


class Candidate(Document):
    """``buffer/<candidate>.json``: a candidate that waits to be trained."""

    schema_name: ClassVar[str] = "vflops.candidate"

    turn: Turn
    architecture: Architecture
    parent: str | None
    """The candidate whose weights it may start from; None: the first network, untrained."""
    morphs: tuple[Morph, ...]
    """From the parent, or from the first network, to this one."""
    hyper: Hyperparameters
    tuned: bool
    """Whether ``hyper`` was chosen by tuning."""
    epochs: int
    patience: int | None
    """Evaluations without a better accuracy after which training ends; None: it does not."""
    end_epoch: int | None = None
    """Of a replay: the epoch after which it ends, as it did in the search."""
    known: int
    """Results that it was chosen by."""
    known_sha256: str
    """Of their names and what they count for: the same for the same search."""
    took_s: float
    """Of proposing, on one core."""
    figures: dict[str, float] = Field(default_factory=dict)
    """What the search expected of it."""


class Claim(Document):
    """``claims/<candidate>.json``: who trains it; made once, by one of all who try."""

    schema_name: ClassVar[str] = "vflops.candidate-claim"

    worker: int
    job: int


class TurnPassed(Document):
    """``buffer/<candidate>.passed.json``: a worker's turn that is no longer waited for.

    ``buffer/<candidate>.last.json``: this one and all later ones, said by the worker itself, whose
    search found nothing more.
    """

    schema_name: ClassVar[str] = "vflops.turn-passed"

    turn: Turn
    by: int
    """The worker that waited."""
    waited_s: float


class WorkerBegun(Data):
    """A worker begins, or goes on after an attempt that died."""

    worker: int
    left_s: float
    """Of its time."""
    clock: str | None = None
    """What is wrong with the machine's clock, where something is."""


class WorkerWaiting(Data):
    """A worker waits for a candidate: a sign of life, so that its turns are not passed."""

    worker: int


class SearchEnded(Data):
    """A worker ends before its time: its search found nothing more within the limits."""

    worker: int
    message: str


class CandidateBegun(Data):
    """A worker begins to train a candidate, or goes on with it."""

    candidate: str
    digest: str
    """Of the architecture."""
    proposal_sha256: str
    parent: str | None
    inherited: bool
    """Whether it starts from its parent's weights."""
    epochs: int
    batch: int
    parameters: int
    ops_forward: int
    """Of one sample, by the rules that score it."""
    ops_total: int
    waited_s: float
    """For a proposal, since the candidate before."""
    built_s: float
    """For the model, and its parent's weights."""
    compiled: bool = False
    """Whether its steps are compiled; else recorded where they can be."""


class CandidateTrained(Data):
    """A candidate's training is over; its result is known to the search."""

    candidate: str
    accuracy: float
    """The best of its evaluations."""
    predicted: float | None = None
    """Of a warm-up round: what the search takes it for at the end of a whole training."""
    epochs: int
    """That were trained and evaluated."""
    reason: Literal["epochs", "patience", "target"]
    inherited: bool
    hyper: Hyperparameters
    weights_sha256: str | None = None

    @property
    def counts_for(self) -> float:
        """The accuracy that the search goes by."""
        return self.accuracy if self.predicted is None else self.predicted


class CandidateFailed(Data):
    """A candidate that could not be trained; the search goes on without it."""

    candidate: str
    message: str
    samples: int = 0
    """Of the steps that were completed: they count."""


class CandidateCut(Data):
    """The time was up while a candidate trained: its steps count, it has no result."""

    candidate: str
    samples: int
