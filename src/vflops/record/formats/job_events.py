"""The payloads of the events that a run and its training jobs write to their logs."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, field_validator

from vflops.record.files.document import Data
from vflops.record.formats.job import NonNegative, Positive, Seconds

PHASES = ("start-up", "compilation", "data", "training", "evaluation", "checkpointing")
"""The phases of a job; at every moment it is in exactly one of them."""

WORK_PHASES = ("data", "training", "checkpointing")
"""The phases whose time FLOPS are divided by."""


class JobPlanned(Data):
    """The controller planned a job."""

    job: int
    sha256: str
    """Of its ``job.json``."""


class JobRearranged(Data):
    """A job resumes with a different number of ranks or a different parallelism."""

    job: int
    ranks: Positive
    settings: dict[str, Any]
    """Of its workload; they replace those of ``job.json``."""
    changes: tuple[str, ...]
    """As text: the name of a setting, its old and its new value."""


class JobBegun(Data):
    """The controller started an attempt at a job."""

    job: int
    launcher: str
    where: str
    attempt: int
    """From 1; restarts for a job that was given up and is tried again."""


class JobLost(Data):
    """An attempt at a job died before the job finished."""

    job: int
    reason: str
    where: str
    suspects: tuple[str, ...] = ()
    """Nodes that may be at fault; a node that is suspected twice gets no more jobs of the run."""


class JobGivenUp(Data):
    """A job died too often; its ensemble is evaluated without it."""

    job: int
    attempts: int
    reason: str


class JobTrained(Data):
    """A job finished; the files of its last attempt are pinned by their hashes."""

    job: int
    attempt: int
    sha256: str
    """Of its log."""
    telemetry_sha256: str | None = None
    """Of its telemetry; None if there is none."""
    files: dict[str, str] | None = None
    """Of the files of its nodes, by name; None in the log of an older vflops."""


class PowerImported(Data):
    """A power log of the node was added to the run."""

    file: str
    """Under the run folder."""
    sha256: str


class Staged(Data):
    """Where a node of an attempt reads the job's data from, and the cost of copying it."""

    node: str
    where: Literal["local", "shared"]
    """The node's local storage, or the data's original location."""
    folder: str
    bytes: int = 0
    """Copied by this attempt; only one of the jobs that share a node copies."""
    seconds: float = 0.0
    """Time for copying, hashing and syncing."""
    bandwidth: float | None = None
    """B/s; None if nothing was copied."""
    waited_s: float = 0.0
    """For another job of the node, and for its turn among the nodes."""
    reason: str | None = None
    """Why nothing was copied."""


class JobStarted(Data):
    """The ranks of an attempt at a job began."""

    device: str
    device_name: str
    ranks: Positive
    precision: str
    ceiling_precision: str | None
    """The precision of the ceiling that bounds it."""
    batch: Positive
    emulated: str | None = None
    """A note if the device emulates the precision by computing in a wider one."""
    layers_of_8_bits: NonNegative = 0
    """Layers of rank 0 whose matrix products are in fp8 or int8."""
    compiled: bool
    """By torch.compile."""
    recorded: bool = False
    """Whether the step uses vflops' own kernels and is replayed as a CUDA graph."""
    deterministic: bool = False
    """Whether the same computation gives the same bits on the same device."""
    threads: NonNegative
    parameters: NonNegative | None
    torch: str | None


class Resumed(Data):
    """Training resumed from a checkpoint."""

    step: NonNegative
    samples: NonNegative
    file: str


class Fallback(Data):
    """A checkpoint could not be used."""

    file: str
    reason: str


class ProgressPoint(Data):
    """How far training has got."""

    step: NonNegative
    samples: NonNegative
    """Trained on so far, over all attempts."""
    epoch: float = Field(ge=0)
    phases: dict[str, Seconds]
    """Seconds that this attempt has spent in each phase."""
    samples_compiling: NonNegative = 0
    """Samples of this attempt whose steps compiled: their time is in ``compilation``."""

    @field_validator("phases")
    @classmethod
    def _known(cls, phases: dict[str, float]) -> dict[str, float]:
        """Refuse an unknown phase: its time would be counted nowhere."""
        for name in phases:
            if name not in PHASES:
                raise ValueError(f"{name!r} is not a phase: expected one of {', '.join(PHASES)}")
        return phases


class Progressed(ProgressPoint):
    """A regular progress report."""

    loss: float | None
    learning_rate: float | None = None


class Evaluated(ProgressPoint):
    """The quality on the validation set."""

    quality: float
    evaluated: NonNegative
    """Samples that were evaluated, each once."""


class Tested(Data):
    """The quality of the trained model on samples that influenced no decision."""

    quality: float
    evaluated: NonNegative


class OutOfBag(Data):
    """The quality of a base model on samples that it was not trained on."""

    quality: float
    evaluated: NonNegative
    available: NonNegative
    """Out-of-bag samples; possibly more than were evaluated."""


class KeptFile(Data):
    """A file that an attempt wrote beside its log."""

    file: str = Field(pattern=r"^[A-Za-z0-9_-][A-Za-z0-9._-]*$")
    sha256: str
    size_bytes: int = Field(ge=0)


class Predicted(Data):
    """A base model's predictions for the validation set were written, one file per rank."""

    samples: NonNegative
    files: tuple[KeptFile, ...]


class EnsembleSize(Data):
    """The quality of the ensemble of the first ``models`` base models."""

    models: Positive
    quality: float


class Ensembled(Data):
    """The predictions of the base models were combined."""

    workload: str
    repeat: NonNegative
    planned: Positive
    jobs: tuple[int, ...]
    """The jobs whose predictions are included; fewer than planned make a partial ensemble. Both
    twins of a pair are listed, and the predictions of one are included."""
    evaluated: NonNegative
    sizes: tuple[EnsembleSize, ...]
    """The last one includes all of them."""
    took_s: Seconds


class Checkpointed(Data):
    """A checkpoint is complete."""

    step: int
    file: str
    sha256: str
    size_bytes: int = Field(ge=0)


class Finished(ProgressPoint):
    """Training finished."""

    reason: Literal["epochs", "target", "patience", "command"]
    weights_sha256: str | None
    """Of the trained weights: the same for the same seed on the same CPU."""
    peak_memory_bytes: int | None = None


class StagesRun(Data):
    """How a model was cut into stages, and how long its ranks were idle."""

    operations: tuple[NonNegative, ...]
    """Per stage: forward and backward pass of one sample."""
    ranks: Positive
    """Ranks that share one copy of the model."""
    micro_batches: Positive
    schedule: Literal["gpipe", "1f1b", "interleaved"]
    bubble: float | None = Field(ge=0, le=1)
    """The share of the steps' time in which ranks were idle; None if it is not known."""
    reason: str | None = None
    """Why it is not known."""
    bubble_theory: float = Field(ge=0, le=1)
    """The same for stages of equal length and messages that take no time."""


MAX_EXHIBIT_BYTES = 1 << 26
"""Size limit of the data that a workload writes for the report."""


class Exhibited(Data):
    """The workload's data for the report was written, beside the log of the attempt."""

    file: str = Field(pattern=r"^[A-Za-z0-9_-][A-Za-z0-9._-]*$")
    """A plain name, so that a log cannot point to files outside of its folder."""
    sha256: str
    size_bytes: int = Field(ge=0)


ModelSharing = Literal["sharded", "model", "pipeline"]
"""How ranks share one copy of a model, if that needs communication."""


class Exchanged(Data):
    """The traffic between the ranks of an attempt in training steps, over all ranks.

    For averaging gradients over copies of the model or, with a ``ModelSharing``, within one copy.
    """

    mode: str
    """The mode of communication between copies, or a ``ModelSharing``."""
    precision: str
    """Of what is sent; several are joined by ``+``."""
    ranks: Positive
    """Ranks with one copy of the model each, or that share one copy."""
    near: Positive
    """Ranks that are close to each other: those of a row, or of a node."""
    backend: str
    algorithm: str | None
    """The algorithm of the library for each kind of call."""
    reason: str | None = None
    """Why it is not known."""
    bytes_near: NonNegative
    bytes_far: NonNegative
    steps: NonNegative
    """Backward passes whose gradients were averaged, or steps."""
    elements: NonNegative | None = None
    """Gradients that were averaged, over all steps; None in the log of an older vflops."""


class KernelTime(Data):
    """The share of one kind of kernel in profiled steps."""

    kind: str
    time_s: float
    share: float
    calls: int


class KernelsProfiled(Data):
    """Where the time of a few steps went, by kind of kernel."""

    steps: int
    kernels: tuple[KernelTime, ...]
