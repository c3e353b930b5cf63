"""``job.json``: the description of a training job."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, TypeVar

from pydantic import BaseModel, Field, ValidationError

from vflops.errors import FolderError
from vflops.record.files.document import Data, Document, first_fault

Checked = TypeVar("Checked", bound=BaseModel)

NonNegative = Annotated[int, Field(ge=0)]
"""A count, or an index from 0."""
Positive = Annotated[int, Field(ge=1)]
"""A count of at least one."""
Seconds = Annotated[float, Field(ge=0)]


class DataFacts(Data):
    """The data of a job, checked before any rank starts."""

    path: str
    synthetic: bool
    fingerprint: str
    """SHA-256 of the data's index."""
    train: NonNegative
    """Samples of the training split."""
    validation: NonNegative
    test: NonNegative = 0
    """Samples that the trained model is tested on once, after training."""
    skipped: NonNegative = 0
    """Unreadable samples that were left out because the user chose so."""
    facts: dict[str, int | float | str] = Field(default_factory=dict)
    """What the workload needs to know later: classes, sizes."""


class Goal(Data):
    """The quality that is scored, its target, and the exponent of the quality factor."""

    quality: str
    better: Literal["higher", "lower"]
    target: float
    exponent: int
    profile_target: float | None = None
    """The target of the profile on the same data; None for the user's own data."""


class DeclaredWork(Data):
    """Operations of one sample as the user states them, without a graph to count."""

    ops_forward: int
    ops_total: int
    source: str


class BagRecord(Data):
    """Which base model of an ensemble a job trains, and how its samples are drawn."""

    model: NonNegative
    """From 0."""
    models: Positive
    """Of the ensemble."""
    bootstrap: str
    seed: int
    """The same for all models of the ensemble; with the model's number it determines the sample."""
    out_of_bag: NonNegative = 0
    """The most out-of-bag samples that the model is evaluated on."""
    twins: bool = False
    """Whether models 2k and 2k + 1 share sample and seed."""

    @property
    def number(self) -> int:
        """The number that determines the sample: that of the model, or of its pair of twins."""
        return self.model // 2 if self.twins else self.model


class WorkerRecord(Data):
    """Which worker of a search a job is."""

    worker: NonNegative
    """From 0."""
    workers: Positive


class JobRecord(Document):
    """``job.json``: everything that the ranks of one job need to know."""

    schema_name: ClassVar[str] = "vflops.job"

    job: int
    workload: str
    repeat: NonNegative
    """0 for the first seed, 1 for the next, and so on."""
    seed: int
    ranks: Positive
    goal: Goal
    settings: dict[str, Any]
    """Of the workload, as its settings type validates them."""
    data: DataFacts
    bag: BagRecord | None = None
    """None for a single training on all samples."""
    worker: WorkerRecord | None = None
    """Of a search; None for a training."""
    kernels: bool = False
    """Whether a few steps are profiled."""
    declared: DeclaredWork | None = None
    graph_declared: bool = False
    """Whether the user supplied the graph; nothing verifies that the training computes it."""

    def settings_as(self, kind: type[Checked]) -> Checked:
        """Return the settings as the workload's type, or raise an error that names the job."""
        try:
            return kind.model_validate(self.settings)
        except ValidationError as error:
            fault = f"settings of {self.workload}: {first_fault(error)}"
            raise FolderError(f"jobs/{self.job}/job.json does not hold {fault}") from error
