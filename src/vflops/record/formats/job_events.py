"""The payloads of the events that a run and its training jobs write to their logs."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, field_validator

from vflops.record.files.document import Data
from vflops.record.formats.bounded_numbers import (
    Index,
    NonNegative,
    Positive,
    Processes,
    Seconds,
)
from vflops.record.formats.recorded_names import RecordedName, RecordedPath

PHASES = ("start-up", "compilation", "data", "training", "evaluation", "checkpointing")
"""The phases of a job; at any time a job is in exactly one of them."""

_PHASES = frozenset(PHASES)
WORK_PHASES = ("data", "training", "checkpointing")
"""The phases whose time counts as work when FLOPS are computed."""


class JobPlanned(Data):
    """The controller planned a job."""

    job: Index
    sha256: str
    """Hash of its ``job.json``."""


class JobRearranged(Data):
    """A job resumes with a different number of ranks or a different parallelism."""

    job: Index
    ranks: Processes
    settings: dict[str, Any]
    """Settings of the workload, which replace those in ``job.json``."""
    changes: tuple[str, ...]
    """One text per changed setting: its name, its old and its new value."""


class JobBegun(Data):
    """The controller started an attempt at a job."""

    job: Index
    launcher: str
    where: str
    attempt: Index
    """Number of the attempt, from 1; starts again at 1 if a job that was given up is retried."""


class JobLost(Data):
    """An attempt at a job died before the job finished."""

    job: Index
    reason: str
    where: str
    suspects: tuple[str, ...] = ()
    """Nodes that may be at fault; a node that is suspected twice gets no further jobs of the
    run."""
    hung: bool = False
    """Whether a rank made no progress; if only one node is suspected, it then gets no further jobs
    at once."""
    excused: bool = False
    """Whether the attempt ended by a time limit, a preemption or a requeue, or to restart after a
    candidate that cannot be trained; this costs none."""


class JobGivenUp(Data):
    """A job failed too often or was cancelled; the ensemble is evaluated without it."""

    job: Index
    attempts: Index
    reason: str


class JobEnded(Data):
    """The controller saw the end of a job; the time of the event is by the controller's clock."""

    job: Index


class JobTrained(Data):
    """A job finished; the event records the hashes of the files of its last attempt."""

    job: Index
    attempt: Index
    sha256: str
    """Hash of the log of the attempt."""
    telemetry_sha256: str | None = None
    """Hash of its telemetry; None if there is no telemetry."""
    files: dict[RecordedName, str] | None = None
    """Hashes of the files of its nodes, by file name; None in logs of older versions."""


class PowerImported(Data):
    """A power log of the node was added to the run."""

    file: RecordedPath
    """Path relative to the run folder."""
    sha256: str


class Staged(Data):
    """Where a node of an attempt reads the job's data from, and the cost of copying it."""

    node: str
    where: Literal["local", "shared"]
    """``local`` for the storage of the node, ``shared`` for the original location of the data."""
    folder: str
    bytes: NonNegative = 0
    """Bytes copied by this attempt: what earlier jobs of the node had not copied."""
    samples: NonNegative | None = None
    """Number of training samples in the node's copy; None if it has all, or if there is none."""
    seconds: float = 0.0
    """Time for copying, hashing and syncing."""
    bandwidth: float | None = None
    """B/s; None if nothing was copied."""
    waited_s: float = 0.0
    """Time spent waiting for another job on the node, or for other nodes to finish copying."""
    reason: str | None = None
    """Why nothing was copied."""


class RankPlace(Data):
    """Where a rank runs, as the rank itself saw it."""

    node: str
    device: str
    id: str | None = None
    """The UUID of its accelerator; None for the CPU and for devices without one."""
    cores: str = Field(pattern=r"^[0-9a-f]{1,4096}$")
    """The cores that it may use, as a hexadecimal mask."""


class JobStarted(Data):
    """The ranks of an attempt at a job started."""

    device: str
    device_name: str
    ranks: Processes
    precision: str
    ceiling_precision: str | None
    """The precision of the ceiling that bounds the job."""
    batch: Positive
    emulated: str | None = None
    """A note if the device emulates the precision by computing in a wider one."""
    layers_of_8_bits: NonNegative = 0
    """Number of layers of rank 0 whose matrix products are in fp8 or int8."""
    compiled: bool
    """Whether the model was compiled by torch.compile."""
    recorded: bool = False
    """Whether the step uses the kernels of vflops and is replayed as a CUDA graph."""
    deterministic: bool = False
    """Whether the same computation gives the same bits on the same device."""
    threads: NonNegative
    parameters: NonNegative | None
    torch: str | None
    framework: str = "pytorch"
    """The framework that computes the steps; torch prepares the batches of all of them."""
    framework_version: str | None = None
    """None in logs of older versions, and for commands."""
    indices_sha256: str | None = None
    """Hash of the file with the indices of the samples that a script was given to train on; None
    for other jobs, which draw their samples themselves."""
    places: tuple[RankPlace, ...] = ()
    """Where the ranks run, in their order; empty in logs of older versions, and for commands."""
    rehearsal: bool = False
    """Whether the ranks may share devices, to try a layout."""


class RanksRehearsed(Data):
    """The memory that the ranks of a rehearsal took; each would have it on a device of its own."""

    peak_bytes: tuple[NonNegative, ...]
    """The most memory of each rank: what torch allocated on its accelerator, or its process's."""
    device_bytes: NonNegative
    """The memory of the device, or of the machine, that ranks shared here."""


class Resumed(Data):
    """Training resumed from a checkpoint."""

    step: NonNegative
    samples: NonNegative
    file: str
    sha256: str | None = None
    """Hash of the checkpoint, to which the log committed before; None in logs of older
    versions."""


class Fallback(Data):
    """A checkpoint could not be used."""

    file: str
    reason: str


class ProgressPoint(Data):
    """The progress of training."""

    step: NonNegative
    samples: NonNegative
    """Samples trained on so far, over all attempts."""
    epoch: float = Field(ge=0, le=1e15)
    phases: dict[str, Seconds]
    """Seconds that this attempt has spent in each phase."""
    samples_compiling: NonNegative = 0
    """Samples of this attempt whose steps included compilation; their time is in the phase
    ``compilation``."""

    @field_validator("phases")
    @classmethod
    def _check_phases(cls, phases: dict[str, float]) -> dict[str, float]:
        """Raise ``ValueError`` for an unknown phase, whose time would not be counted."""
        if not phases.keys() <= _PHASES:
            name = next(name for name in phases if name not in _PHASES)
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
    """Number of samples that were evaluated."""
    loss: float | None = None
    """Mean loss of these samples, without label smoothing; None if the workload does not measure
    it or if it is not finite."""
    learning_rate: float | None = None
    """Learning rate of the next step; after the last step, of that step."""


class SplitRead(Data):
    """The samples of a split that an attempt read, and compared with the digests of packing."""

    samples: NonNegative
    compared: NonNegative
    """Number of samples that the ranks read at least once; each was found to be unchanged."""
    sha256: str
    """The content hash of the split, computed from the digests that were compared."""


class DataRead(Data):
    """What an attempt read of its data, by split: ``train``, ``validation`` and ``test``."""

    splits: dict[str, SplitRead]
    leaked: NonNegative
    """Number of samples for validation or testing whose values are also in the training split."""


class Tested(Data):
    """The quality of the trained model on the test set, which is not used during training."""

    quality: float
    evaluated: NonNegative


class OutOfBag(Data):
    """The quality of a base model on its out-of-bag samples, which it was not trained on."""

    quality: float
    evaluated: NonNegative
    available: NonNegative
    """Number of out-of-bag samples; may exceed ``evaluated``."""


class KeptFile(Data):
    """A file that an attempt wrote to the folder of its log."""

    file: RecordedName
    sha256: str
    size_bytes: NonNegative


class Predicted(Data):
    """A base model's predictions for the validation set were written, one file per rank."""

    samples: NonNegative
    files: tuple[KeptFile, ...]


class EvaluationPredicted(Predicted):
    """A base model's predictions at an evaluation during training were written.

    The files are deleted once the predictions of all models are combined.
    """

    step: NonNegative


class EnsembleSize(Data):
    """The quality of the ensemble of the first ``models`` base models."""

    models: Processes
    quality: float


class EnsembleEvaluation(Data):
    """The quality of all base models combined, each as it was at its evaluation at ``step``."""

    step: NonNegative
    epoch: float = Field(ge=0, le=1e15)
    quality: float


class Ensembled(Data):
    """The predictions of the base models were combined."""

    workload: str
    repeat: NonNegative
    planned: Processes
    jobs: tuple[Index, ...]
    """The jobs of the ensemble; if there are fewer than planned, the ensemble is partial. Both
    twins of a pair are listed, but only the predictions of one are included."""
    evaluated: NonNegative
    sizes: tuple[EnsembleSize, ...]
    """Qualities of ensembles of increasing size; the last one includes all base models."""
    evaluations: tuple[EnsembleEvaluation, ...] = ()
    """Qualities of all base models during training, in the order of steps. A model whose training
    had ended counts with its last predictions. Empty in logs of older versions."""
    took_s: Seconds

    @property
    def qualities(self) -> list[float]:
        """All qualities, by size and during training."""
        return [
            *(size.quality for size in self.sizes),
            *(evaluation.quality for evaluation in self.evaluations),
        ]


class Committed(Data):
    """The log commits to the state of training after a step, which an audit compares."""

    step: NonNegative
    sha256: str
    """Hash of the weights, the optimizer's state and the progress, as in a checkpoint."""
    loss: float | None = None
    """The loss of that step; None before the first step, and in logs of older versions."""
    phases: dict[str, Seconds] = Field(default_factory=dict)
    """Seconds that this attempt had spent in each phase when it had this state; empty in logs of
    older versions."""
    samples_compiling: NonNegative = 0
    """Samples of this attempt whose steps included compilation."""


class Checkpointed(Committed):
    """A checkpoint with this state is being completed: its file is on disk under another name."""

    file: RecordedName
    size_bytes: NonNegative
    kept: bool = False
    """Whether the file is kept for audits, because it is at the end of a segment."""


class Finished(ProgressPoint):
    """Training finished."""

    reason: Literal["epochs", "target", "patience", "command"]
    weights_sha256: str | None
    """Hash of the trained weights; reproducible for the same seed on the same CPU."""
    peak_memory_bytes: NonNegative | None = None


class StagesRun(Data):
    """How a model was divided into stages, and how long ranks were idle."""

    operations: tuple[NonNegative, ...]
    """For each stage, the operations of the forward and backward pass of one sample."""
    ranks: Processes
    """Ranks that share one copy of the model."""
    micro_batches: Positive
    schedule: Literal["gpipe", "1f1b", "interleaved"]
    bubble: float | None = Field(ge=0, le=1)
    """Share of the time of a step in which ranks were idle; None if it is not known."""
    reason: str | None = None
    """Why ``bubble`` is not known."""
    bubble_theory: float = Field(ge=0, le=1)
    """The theoretical value of ``bubble`` for equally long stages and instant messages."""


MAX_EXHIBIT_BYTES = 1 << 26
"""Size limit of the data that a workload writes for the report."""


class Exhibited(Data):
    """The workload wrote data for the report to the folder of the attempt."""

    file: RecordedName
    sha256: str
    size_bytes: NonNegative


class ExhibitSkipped(Data):
    """The trained model was not used to make examples for the report."""

    reason: str


ModelSharing = Literal["sharded", "model", "pipeline"]
"""Ways of sharing one copy of a model between ranks that need communication."""


class Exchanged(Data):
    """The bytes that the ranks of an attempt sent in training steps, summed over all ranks.

    One event covers either the averaging of gradients over copies of the model, or the
    communication within one copy.
    """

    mode: str
    """The communication mode for averages over copies, or a ``ModelSharing`` within one copy."""
    precision: str
    """Precision of the messages; several are joined by ``+``."""
    ranks: Processes
    """Number of ranks that have one copy each or, within one copy, that share it."""
    near: Processes
    """Number of ranks in a group with fast links: a node, or a row of the torus."""
    backend: str
    algorithm: str | None
    """The algorithm that the library used for each kind of call; None if it is not known."""
    reason: str | None = None
    """Why ``algorithm`` is not known."""
    bytes_near: NonNegative
    """Bytes sent within groups of ``near`` ranks."""
    bytes_far: NonNegative
    """Bytes sent between such groups."""
    steps: NonNegative
    """Number of backward passes whose gradients were averaged; within one copy, of steps."""
    elements: NonNegative | None = None
    """Number of gradient elements that were averaged, over all steps; None in logs of older
    versions."""


class FrameworkCounted(Data):
    """The operations of a step as the framework itself counts them."""

    source: str
    """What counted them, such as ``XLA``."""
    samples: Positive
    """Number of samples of the step."""
    flops: float = Field(gt=0, le=1e30)


class KernelTime(Data):
    """The time of one kind of kernel in the profiled steps."""

    kind: str
    time_s: float
    share: float
    calls: int


class KernelsProfiled(Data):
    """The time of a few profiled steps, by kind of kernel."""

    steps: int
    kernels: tuple[KernelTime, ...]
