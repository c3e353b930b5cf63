"""What a training job writes down: its description, and the payloads of its events."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, TypeVar

from pydantic import BaseModel, Field, ValidationError

from vflops.errors import FolderError
from vflops.record.files.document import Data, Document, first_fault

Checked = TypeVar("Checked", bound=BaseModel)

Number = Annotated[int, Field(ge=0)]
"""How many, or which from 0."""
Some = Annotated[int, Field(ge=1)]
"""How many, at least one."""
Seconds = Annotated[float, Field(ge=0)]


class DataFacts(Data):
    """The data of a job, checked before any rank started."""

    path: str
    synthetic: bool
    fingerprint: str
    """SHA-256 of the data's index."""
    train: Number
    """Samples of the training split."""
    validation: Number
    test: Number = 0
    """Samples that the trained model is tested on, once, after its training."""
    skipped: Number = 0
    """Samples that could not be read and were left out by the user's choice."""
    facts: dict[str, int | float | str] = Field(default_factory=dict)
    """What the workload wants to know again: classes, sizes."""


class Goal(Data):
    """The quality that counts, and what a miss costs."""

    quality: str
    better: Literal["higher", "lower"]
    target: float
    exponent: int
    profile_target: float | None = None
    """What the profile asks for on the same data; None where the data is the user's."""


class DeclaredWork(Data):
    """Operations of one sample as a user states them, where there is no graph to count."""

    ops_forward: int
    ops_total: int
    source: str


class BagRecord(Data):
    """Which base model of an ensemble a job trains, and how its samples are drawn."""

    model: Number
    """From 0."""
    models: Some
    """Of the ensemble."""
    bootstrap: str
    seed: int
    """The same for all models of the ensemble: with the model's number it gives the sample."""
    out_of_bag: Number = 0
    """The most samples outside of its own that the model is judged by."""
    twins: bool = False
    """Whether models 2k and 2k + 1 have one sample and one seed."""

    @property
    def number(self) -> int:
        """What the sample is drawn by: the model's own number, or that of its pair."""
        return self.model // 2 if self.twins else self.model


class WorkerRecord(Data):
    """Which worker of a search a job is."""

    worker: Number
    """From 0."""
    workers: Some


class JobRecord(Document):
    """``job.json``: all that the ranks of one job need to know."""

    schema_name: ClassVar[str] = "vflops.job"

    job: int
    workload: str
    repeat: Number
    """0 for the first training, 1 for the next seed …"""
    seed: int
    ranks: Some
    goal: Goal
    settings: dict[str, Any]
    """The workload's own, as its type validates them."""
    data: DataFacts
    bag: BagRecord | None = None
    """None for a training by itself, on all samples."""
    worker: WorkerRecord | None = None
    """Of a search; None for a training."""
    kernels: bool = False
    """Whether a few steps are profiled."""
    declared: DeclaredWork | None = None
    graph_declared: bool = False
    """Whether the graph is what the user says the training computes; nothing ties it to it."""

    def settings_as(self, kind: type[Checked]) -> Checked:
        """The settings as the type of the workload, or an error that names the job."""
        try:
            return kind.model_validate(self.settings)
        except ValidationError as error:
            fault = f"settings of {self.workload}: {first_fault(error)}"
            raise FolderError(f"jobs/{self.job}/job.json does not hold {fault}") from error
