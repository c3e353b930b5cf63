"""The payloads of the events that a run and its training jobs write to their logs."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, field_validator

from vflops.record.files.document import Data
from vflops.record.formats.job import Number, Seconds, Some

PHASES = ("start-up", "compilation", "data", "training", "evaluation", "checkpointing")
"""Where a job's time goes; at every moment it is in exactly one of them."""

WORK_PHASES = ("data", "training", "checkpointing")
"""The phases whose time FLOPS are divided by: an epoch as a user waits for it."""


class JobPlanned(Data):
    """The controller planned a job."""

    job: int
    sha256: str
    """Of its ``job.json``."""


class JobRearranged(Data):
    """A job goes on with other ranks, or with its model shared in another way."""

    job: int
    ranks: Some
    settings: dict[str, Any]
    """Of its workload, in place of those of ``job.json``."""
    changes: tuple[str, ...]
    """In words: the name of a setting, what it was and what it is."""


class JobBegun(Data):
    """The controller had an attempt at a job started."""

    job: int
    launcher: str
    where: str
    attempt: int
    """From 1; anew for a job that was given up and is tried again."""


class JobLost(Data):
    """An attempt at a job died before the job came to its end."""

    job: int
    reason: str
    where: str
    suspects: tuple[str, ...] = ()
    """Nodes whose fault it may be; one with two gets no other job of the run."""


class JobGivenUp(Data):
    """A job that died too often; its ensemble goes without it."""

    job: int
    attempts: int
    reason: str


class JobTrained(Data):
    """A job came to its end; what its last attempt left is pinned."""

    job: int
    attempt: int
    sha256: str
    """Of its log."""
    telemetry_sha256: str | None = None
    """Of its telemetry; None where there is none."""
    files: dict[str, str] | None = None
    """Of what its nodes left beside them, by name; None in a log of an older vflops."""


class PowerImported(Data):
    """A power log of the node was added to the run."""

    file: str
    """Under the run folder."""
    sha256: str


class Staged(Data):
    """Where a node of an attempt reads the job's data from, and what that took."""

    node: str
    where: Literal["local", "shared"]
    """Storage of the node's own, or where the data is."""
    folder: str
    bytes: int = 0
    """Copied by this attempt: by one of the jobs that share a node."""
    seconds: float = 0.0
    """Of copying, hashed and synced."""
    bandwidth: float | None = None
    """B/s; None where nothing was copied."""
    waited_s: float = 0.0
    """For another job of the node, and for a turn among the nodes."""
    reason: str | None = None
    """Why nothing was copied."""


class JobStarted(Data):
    """An attempt at a job began on its ranks."""

    device: str
    device_name: str
    ranks: Some
    precision: str
    ceiling_precision: str | None
    """The precision whose ceiling bounds it."""
    batch: Some
    emulated: str | None = None
    """What to know where the device computes wider than the precision and converts."""
    layers_of_8_bits: Number = 0
    """Of rank 0, whose matrix products are in fp8 or int8."""
    compiled: bool
    """By torch.compile."""
    recorded: bool = False
    """Whether the step is a model of our own kernels, replayed as a CUDA graph."""
    deterministic: bool = False
    """Whether the same computation gives the same bits again, on the same device."""
    threads: Number
    parameters: Number | None
    torch: str | None


class Resumed(Data):
    """Training goes on from a checkpoint."""

    step: Number
    samples: Number
    file: str


class Fallback(Data):
    """A checkpoint could not be used."""

    file: str
    reason: str


class ProgressPoint(Data):
    """Where training stands."""

    step: Number
    samples: Number
    """Trained on so far, over all attempts."""
    epoch: float = Field(ge=0)
    phases: dict[str, Seconds]
    """Seconds of this attempt in each phase so far."""
    samples_compiling: Number = 0
    """Of this attempt's samples, those whose steps compiled: their time is in ``compilation``."""

    @field_validator("phases")
    @classmethod
    def _known(cls, phases: dict[str, float]) -> dict[str, float]:
        """Time in a phase that nobody counts would be lost."""
        for name in phases:
            if name not in PHASES:
                raise ValueError(f"{name!r} is no phase: {', '.join(PHASES)} are")
        return phases


class Progressed(ProgressPoint):
    """A note on the way."""

    loss: float | None
    learning_rate: float | None = None


class Evaluated(ProgressPoint):
    """The quality on the validation set."""

    quality: float
    evaluated: Number
    """Samples that were evaluated, each once."""


class Tested(Data):
    """The quality of the trained model on samples that no choice rested on."""

    quality: float
    evaluated: Number


class OutOfBag(Data):
    """The quality of a base model on samples that it has not learned from."""

    quality: float
    evaluated: Number
    available: Number
    """Samples outside of its bag; they may be more than were evaluated."""


class KeptFile(Data):
    """A file that an attempt left, beside its log."""

    file: str = Field(pattern=r"^[A-Za-z0-9_-][A-Za-z0-9._-]*$")
    sha256: str
    size_bytes: int = Field(ge=0)


class Predicted(Data):
    """A base model's predictions for the validation set are written, a file a rank."""

    samples: Number
    files: tuple[KeptFile, ...]


class EnsembleSize(Data):
    """The quality of the first ``models`` base models together."""

    models: Some
    quality: float


class Ensembled(Data):
    """The predictions of base models were put together."""

    workload: str
    repeat: Number
    planned: Some
    jobs: tuple[int, ...]
    """Those whose predictions are in it; fewer than planned make a partial ensemble. Of twins both
    are named, and the predictions of one are in it."""
    evaluated: Number
    sizes: tuple[EnsembleSize, ...]
    """The last one is all of them."""
    took_s: Seconds


class Checkpointed(Data):
    """A checkpoint is complete."""

    step: int
    file: str
    sha256: str
    size_bytes: int = Field(ge=0)


class Finished(ProgressPoint):
    """Training came to its end."""

    reason: Literal["epochs", "target", "patience", "command"]
    weights_sha256: str | None
    """Of the trained weights: the same for the same seed on the same CPU."""
    peak_memory_bytes: int | None = None


class StagesRun(Data):
    """How a model was cut into stages, and how long its ranks had nothing to do."""

    operations: tuple[Number, ...]
    """Of each stage: forward and backward pass of one sample."""
    ranks: Some
    """That have one copy of the model between them."""
    micro_batches: Some
    schedule: Literal["gpipe", "1f1b", "interleaved"]
    bubble: float | None = Field(ge=0, le=1)
    """The part of the steps' time in which ranks computed nothing; None where it is not known."""
    reason: str | None = None
    """Why it is not known."""
    bubble_theory: float = Field(ge=0, le=1)
    """The same if all stages took as long, and messages no time."""


MOST_EXHIBIT_BYTES = 1 << 26
"""Of what a workload leaves to be shown."""


class Exhibited(Data):
    """What the workload leaves to be shown is written, beside the log of the attempt."""

    file: str = Field(pattern=r"^[A-Za-z0-9_-][A-Za-z0-9._-]*$")
    """A plain name: a log must not lead a reader out of its folder."""
    sha256: str
    size_bytes: int = Field(ge=0)


ModelSharing = Literal["sharded", "model", "pipeline"]
"""How ranks share one copy of a model, where they send each other something for it."""


class Exchanged(Data):
    """What the ranks of an attempt sent each other in steps, all of them together.

    To average gradients over copies of the model, or, with a mode of sharing one, for that.
    """

    mode: str
    """Of communication between copies; or a ``ModelSharing``."""
    precision: str
    """Of what is sent; several are joined by ``+``."""
    ranks: Some
    """With a copy of the model each; or with one between them."""
    near: Some
    """Ranks near each other: those of a row, or of a node."""
    backend: str
    algorithm: str | None
    """How the library does each of the calls that were made."""
    reason: str | None = None
    """Why that is not known."""
    bytes_near: Number
    bytes_far: Number
    steps: Number
    """Backward passes whose gradients were averaged; or steps."""
    elements: Number | None = None
    """Gradients that copies averaged, over all steps; None in a log of an older vflops."""


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
