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
    """The dataset of a job, checked before any rank starts."""

    path: str
    synthetic: bool
    fingerprint: str
    """SHA-256 of the index of the dataset."""
    train: NonNegative
    """Number of samples in the training split."""
    validation: NonNegative
    test: NonNegative = 0
    """Number of samples that the trained model is tested on once, after training."""
    skipped: NonNegative = 0
    """Number of unreadable samples that were skipped at the user's request."""
    facts: dict[str, int | float | str] = Field(default_factory=dict)
    """Properties that the workload needs later, such as classes and sizes."""


class Goal(Data):
    """The quality that is scored, its target, and the exponent of the quality factor."""

    quality: str
    better: Literal["higher", "lower"]
    target: float
    exponent: int
    profile_target: float | None = None
    """The target of the profile for synthetic data; None for the user's data."""
    bounds: tuple[float, float] | None = None
    """The lowest and the highest possible quality; None if not known."""


class DeclaredWork(Data):
    """Operations per sample as declared by the user, if there is no graph to count."""

    ops_forward: int
    ops_total: int
    source: str


class BagRecord(Data):
    """The base model of an ensemble that a job trains, and how its samples are drawn."""

    model: NonNegative
    """Index of the base model, from 0."""
    models: Positive
    """Number of base models in the ensemble."""
    bootstrap: str
    seed: int
    """The same for all models of the ensemble; together with ``number`` it determines the
    sample."""
    out_of_bag: NonNegative = 0
    """Maximum number of out-of-bag samples that the model is evaluated on."""
    twins: bool = False
    """Whether models 2k and 2k + 1 share sample and seed."""

    @property
    def number(self) -> int:
        """The index of the model or, with twins, of its pair; determines the sample with
        ``seed``."""
        return self.model // 2 if self.twins else self.model


class WorkerRecord(Data):
    """The worker of a search that a job runs."""

    worker: NonNegative
    """Index of the worker, from 0."""
    workers: Positive


class JobRecord(Document):
    """``job.json``: everything that the ranks of one job need."""

    schema_name: ClassVar[str] = "vflops.job"

    job: int
    workload: str
    repeat: NonNegative
    """0 for the first seed, 1 for the next, and so on."""
    seed: int
    ranks: Positive
    goal: Goal
    settings: dict[str, Any]
    """The settings of the workload; ``settings_as`` validates them."""
    data: DataFacts
    bag: BagRecord | None = None
    """None for a single model that is trained on all samples."""
    worker: WorkerRecord | None = None
    """Set for a worker of a search; None for a training job."""
    kernels: bool = False
    """Whether a few steps are profiled."""
    declared: DeclaredWork | None = None
    graph_declared: bool = False
    """Whether the user supplied the graph; it is then not verified that training computes it."""

    def settings_as(self, kind: type[Checked]) -> Checked:
        """Return the settings as an instance of ``kind``, or raise ``FolderError`` with the job."""
        try:
            return kind.model_validate(self.settings)
        except ValidationError as error:
            fault = f"settings of {self.workload}: {first_fault(error)}"
            raise FolderError(f"jobs/{self.job}/job.json has invalid {fault}") from error
