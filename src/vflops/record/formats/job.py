"""``job.json``: the description of a training job."""

from __future__ import annotations

import math
from typing import Annotated, Any, ClassVar, Literal, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    Field,
    PlainSerializer,
    ValidationError,
    WithJsonSchema,
)

from vflops.errors import FolderError
from vflops.record.files.document import Data, Document, first_fault
from vflops.record.formats.bounded_numbers import (
    Index,
    NonNegative,
    Operations,
    Positive,
    Processes,
)

Checked = TypeVar("Checked", bound=BaseModel)
_MAX_EXPONENT = 10**6

DataKind = Literal["real", "synthetic", "unknown"]


def data_kind(synthetic: bool | None) -> DataKind:
    """Return the kind of data; it is unknown if ``synthetic`` is None."""
    return "unknown" if synthetic is None else "synthetic" if synthetic else "real"


class EqualSamples(Data):
    """Two samples of a dataset with the same content."""

    sample: str
    same_as: str


class Duplicates(Data):
    """Samples of a dataset that occur twice: how many there are, and the first few of them."""

    leaked: NonNegative
    """Number of samples for validation or testing that are also in the training split."""
    leaks: tuple[EqualSamples, ...]
    contradictory: NonNegative
    """Number of samples that occur before with another label."""
    contradictions: tuple[EqualSamples, ...]

    @property
    def leak_text(self) -> str:
        """How many samples leak from training into validation, and which."""
        number = (
            "1 validation sample is"
            if self.leaked == 1
            else f"{self.leaked:,} validation samples are"
        )
        return f"{number} also trained on: {_examples(self.leaks, self.leaked)}"

    @property
    def contradiction_text(self) -> str:
        """How many samples occur with two labels, and which."""
        found = self.contradictory
        number = "1 sample occurs" if found == 1 else f"{found:,} samples occur"
        return f"{number} with two labels: {_examples(self.contradictions, found)}"

    @property
    def warnings(self) -> list[str]:
        """One sentence for each kind of fault that was found."""
        found = ((self.leaked, self.leak_text), (self.contradictory, self.contradiction_text))
        return [text for number, text in found if number]


def _examples(pairs: tuple[EqualSamples, ...], total: int) -> str:
    named = [f"{pair.sample} equals {pair.same_as}" for pair in pairs]
    return ", ".join(named) + (f" and {total - len(named):,} more" if total > len(named) else "")


class SampleUnit(Data):
    """What a sample consists of, if speeds are quoted in it, such as the tokens of a text."""

    name: str = Field(min_length=1, max_length=40)
    """In the plural: ``tokens``."""
    count: Positive
    """How many of them a sample has."""


OfLoss = Literal["exp(-loss)"]
"""How a quality follows from the mean loss of an evaluation."""


class DataFacts(Data):
    """The dataset of a job, checked before any rank starts."""

    path: str
    synthetic: bool | None
    """None if that is not known, because a command reads its own data."""
    fingerprint: str
    """SHA-256 of the index of the dataset; for a command, of the script and the data it names."""
    contents: dict[str, str] | None = None
    """The content hash of each split: independent of the order and the names of its samples. Empty
    if the data was packed without digests of its samples; None in records of older versions, and
    for workloads that do not hash samples."""
    parts: dict[str, int] | None = None
    """Number of hashed parts of each split, such as blocks of text; None if these are samples."""
    train: NonNegative
    """Number of samples in the training split."""
    validation: NonNegative
    test: NonNegative = 0
    """Number of samples that the trained model is tested on once, after training."""
    skipped: NonNegative = 0
    """Number of unreadable samples that were skipped at the user's request."""
    facts: dict[str, int | float | str] = Field(default_factory=dict)
    """Properties that the workload needs later, such as classes and sizes."""
    unit: SampleUnit | None = None
    """What a sample consists of; None if speeds are quoted in samples."""
    duplicates: Duplicates | None = None
    """None if the samples were not compared, for example because they are synthetic."""


def _with_open_ends(bounds: object) -> object:
    """Return bounds in which an end that is None or a text of ``_for_json`` is infinite."""
    if not isinstance(bounds, list | tuple) or len(bounds) != 2:
        return bounds
    return tuple(
        open_end if end is None or end == str(open_end) else end
        for end, open_end in zip(bounds, (-math.inf, math.inf), strict=True)
    )


def _for_json(bounds: tuple[float, float]) -> list[float | str]:
    return [str(end) if math.isinf(end) else end for end in bounds]


_Bound = Annotated[
    float,
    Field(allow_inf_nan=True),
    WithJsonSchema({"anyOf": [{"type": "number"}, {"enum": ["inf", "-inf"]}]}),
]
QualityBounds = Annotated[
    tuple[_Bound, _Bound],
    BeforeValidator(_with_open_ends),
    PlainSerializer(_for_json, return_type=list[float | str], when_used="json"),
]
"""Bounds of a quality; JSON, which has no infinite numbers, holds the text ``inf`` or ``-inf``."""


class Goal(Data):
    """The quality that is scored, its target, and the exponent of the quality factor."""

    quality: str
    better: Literal["higher", "lower"]
    target: float
    exponent: int = Field(ge=-_MAX_EXPONENT, le=_MAX_EXPONENT)
    profile_target: float | None = None
    """The target of the profile for synthetic data; None for the user's data."""
    bounds: QualityBounds | None = None
    """The lowest and the highest possible quality; None if not known."""
    of_loss: OfLoss | None = None
    """How the quality follows from the loss, so that a target is a loss; None if it does not."""


class DeclaredWork(Data):
    """Operations per sample as declared by the user, if there is no graph to count."""

    ops_forward: Operations
    ops_total: Operations
    source: str


class BagRecord(Data):
    """The base model of an ensemble that a job trains, and how its samples are drawn."""

    model: NonNegative
    """Index of the base model, from 0."""
    models: Processes
    """Number of base models in the ensemble."""
    bootstrap: str
    seed: int
    """The same for all models of the ensemble; together with ``number`` it determines the
    sample."""
    out_of_bag: NonNegative = 0
    """Maximum number of out-of-bag samples that the model is evaluated on."""
    twins: bool = False
    """Whether models 2k and 2k + 1 share sample and seed."""
    combine_every: NonNegative = 0
    """Every how many evaluations the model stores its predictions, in addition to those after
    training; 0 for never."""

    @property
    def number(self) -> int:
        """The index of the model or, with twins, of its pair; determines the sample with
        ``seed``."""
        return self.model // 2 if self.twins else self.model


class WorkerRecord(Data):
    """The worker of a search that a job runs."""

    worker: NonNegative
    """Index of the worker, from 0."""
    workers: Processes


class SegmentRecord(Data):
    """The part of a recorded training that a job of an audit trains again."""

    run: str
    """The folder of the recorded run."""
    job: NonNegative
    """The job of that run."""
    first: NonNegative
    """The step that it starts after; its checkpoint is in the folder of this job, unless it is 0
    or a candidate is trained."""
    last: NonNegative
    """The step that it ends after; if it is ``first``, the model is only evaluated."""
    is_end: bool
    """Whether the recorded training ended there, so that the model is evaluated as it was then."""
    commits: tuple[NonNegative, ...]
    """The steps whose states are compared."""
    checkpoints: tuple[NonNegative, ...]
    """Those of them at which the ranks made their buffers equal, for a checkpoint."""
    candidate: str | None = None
    """The candidate of a search; None for a model."""
    perturbation: float = Field(default=0.0, ge=0, lt=1)
    """Relative change of the weights at the start, to measure how far rounding errors grow."""


class JobRecord(Document):
    """``job.json``: everything that the ranks of one job need."""

    schema_name: ClassVar[str] = "vflops.job"

    job: Index
    workload: str
    repeat: NonNegative
    """0 for the first seed, 1 for the next, and so on."""
    seed: int
    ranks: Processes
    goal: Goal
    settings: dict[str, Any]
    """The settings of the workload; ``settings_as`` validates them."""
    data: DataFacts
    bag: BagRecord | None = None
    """None for a single model that is trained on all samples."""
    worker: WorkerRecord | None = None
    """Set for a worker of a search; None for a training job."""
    segment: SegmentRecord | None = None
    """Set for a job of an audit; None for training."""
    kernels: bool = False
    """Whether a few steps are profiled."""
    declared: DeclaredWork | None = None
    graph_declared: bool = False
    """Whether the user supplied the graph; it is then not verified that training computes it."""
    rules: str = "hpcai500"
    """The convention by which its operations are counted; vflops 0.1.0 knew only the default."""

    def settings_as(self, kind: type[Checked]) -> Checked:
        """Return the settings as an instance of ``kind``, or raise ``FolderError`` with the job."""
        try:
            return kind.model_validate(self.settings)
        except ValidationError as error:
            fault = f"settings of {self.workload}: {first_fault(error)}"
            raise FolderError(f"jobs/{self.job}/job.json has invalid {fault}") from error
