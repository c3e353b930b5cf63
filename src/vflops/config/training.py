"""Settings of training: the rows of HPC AI500 V3.0's table 2, its length and its evaluation."""

from __future__ import annotations

import itertools
from typing import Literal

from pydantic import Field, model_validator

from vflops.config.parallel import CommunicationSettings, ParallelSettings
from vflops.config.section import Section

Optimizer = Literal["sgd", "adam", "adagrad", "lars", "lamb"]
Schedule = Literal["cosine", "polynomial", "step", "constant"]
TrainingPrecision = Literal[
    "fp32", "tf32", "fp16", "mixed-fp16", "mixed-bf16", "mixed-fp8", "mixed-int8"
]
CEILING_PRECISIONS: dict[str, str] = {
    "fp32": "fp32",
    "tf32": "tf32",
    "fp16": "fp16",
    "mixed-fp16": "fp16",
    "mixed-bf16": "bf16",
    "mixed-fp8": "fp8",
    "mixed-int8": "int8",
}
"""The precision of the ceiling that bounds training in each precision."""
EIGHT_BIT_PRECISIONS = ("mixed-fp8", "mixed-int8")
"""The precisions with 8-bit matrix products."""
BatchNorm = Literal["local", "synchronised"]
Compile = Literal["auto", "on", "off", "record"]


class TrainSettings(Section):
    """How a model is trained, whatever the workload."""

    epochs: int = Field(default=1, ge=1, le=100_000)
    batch: int = Field(default=64, ge=1)
    """Samples per update, over all ranks."""
    accumulate: int = Field(default=1, ge=1)
    """Parts of a batch that are computed one after the other to fit into memory; the
    micro-batches of a pipeline."""
    ranks: int = Field(default=1, ge=1, le=65536)
    """Processes that train one model together: P, one accelerator each."""
    parallel: ParallelSettings = ParallelSettings()
    communication: CommunicationSettings = CommunicationSettings()
    device: str = "auto"
    """``auto`` is the accelerator if there is one, else the CPU."""

    optimizer: Optimizer = "sgd"
    learning_rate: float = Field(default=0.1, gt=0)
    """At its peak; for a batch of 256 if ``linear_scaling`` is on."""
    linear_scaling: bool = False
    """Whether the learning rate grows with the batch: × batch / 256."""
    schedule: Schedule = "cosine"
    warmup_epochs: float = Field(default=0.0, ge=0)
    milestones: tuple[float, ...] = ()
    """Epochs after which the schedule ``step`` divides the learning rate by ten."""
    momentum: float = Field(default=0.9, ge=0, lt=1)
    nesterov: bool = False
    weight_decay: float = Field(default=0.0, ge=0)
    """Not applied to batch norm and biases."""

    precision: TrainingPrecision = "fp32"
    batch_norm: BatchNorm = "local"
    ghosts: int = Field(default=1, ge=1)
    """Equal parts of a rank's batch that batch norm normalises separately."""
    compile: Compile = "auto"
    """``auto`` compiles on accelerators (in a search: what finishes sooner that way); ``record``
    records steps as CUDA graphs without compilation or autotuning: ready sooner, slower steps."""
    deterministic: bool = False
    """Whether an accelerator uses only deterministic kernels: slower, and an error if torch has
    none. A CPU always does."""

    evaluate_every: int = Field(default=1, ge=1)
    """Epochs between two evaluations; the last epoch is always evaluated."""
    end_epoch: int | None = Field(default=None, ge=1)
    """The epoch after which training ends early; None: at the end of its schedule."""
    stop_at_target: bool = False
    patience: int | None = Field(default=None, ge=1)
    """Evaluations without improvement after which training ends; None: all epochs are run."""
    checkpoint_s: float = Field(default=300.0, gt=0)
    """Longest time between two checkpoints; there is one before each evaluation as well."""
    checkpoint_share: float = Field(default=0.05, gt=0, le=1)
    """The largest share of the time for checkpoints before evaluations; beyond it some are left
    out. 1: none are."""
    readers: int = Field(default=4, ge=1, le=256)
    """Threads that read the next batches while an accelerator computes."""

    @model_validator(mode="after")
    def _is_consistent(self) -> TrainSettings:
        self.parallel.check(self.ranks, self.accumulate, self.batch // self.ghosts)
        self.communication.check(self.parallel, self.shares)
        parts = self.shares * self.accumulate * self.ghosts
        if self.batch % parts:
            one = self.shares == 1 < self.ranks
            sharing = "copy of the model" if one else "copies of the model"
            sharing = "ranks" if self.shares == self.ranks else sharing
            raise ValueError(
                f"batch {self.batch} cannot be shared evenly by {self.shares} {sharing} × "
                f"{self.accumulate} accumulation × {self.ghosts} ghosts: "
                f"the nearest that can is {max(round(self.batch / parts), 1) * parts}"
                f"{self._other_parts()}"
            )
        if self.warmup_epochs >= self.epochs and self.warmup_epochs > 0:
            raise ValueError(
                f"warmup_epochs {self.warmup_epochs:g} leave nothing of {self.epochs} epochs: "
                "take fewer, or none: --set train.warmup_epochs=0"
            )
        if bool(self.milestones) != (self.schedule == "step"):
            raise ValueError(
                f"milestones {list(self.milestones)} and schedule {self.schedule!r} contradict: "
                "the schedule step has milestones, and only that one"
            )
        rising = all(a < b for a, b in itertools.pairwise(self.milestones))
        if not rising or any(not 0 < epoch < self.epochs for epoch in self.milestones):
            raise ValueError(
                f"milestones {list(self.milestones)} are not rising epochs between 0 and "
                f"{self.epochs}"
            )
        if self.precision == "fp16" and self.optimizer in ("adam", "adagrad", "lamb"):
            raise ValueError(
                f"{self.optimizer} keeps squares of gradients, which pure fp16 cannot hold: "
                "take precision mixed-fp16, or optimizer sgd or lars"
            )
        if self.precision in EIGHT_BIT_PRECISIONS and self.parallel.divides_channels:
            raise ValueError(
                f"{self.precision} multiplies whole layers, and parallel.split tensor divides "
                "their channels: take parallel.mode data, sharded or pipeline"
            )
        if self.nesterov and (self.optimizer != "sgd" or self.momentum == 0):
            raise ValueError("nesterov needs optimizer sgd with a momentum")
        if self.ghosts > 1 and self.batch_norm == "synchronised":
            raise ValueError("ghosts split a batch that synchronised batch norm unites: choose one")
        return self

    def _other_parts(self) -> str:
        """Return ``; or train.accumulate 1, 2, 4``: what fits without a change of the batch."""
        part, rest = divmod(self.batch, self.shares * self.ghosts)
        fitting = [n for n in range(1, part + 1) if part % n == 0 and n < 4 * self.accumulate]
        if rest or self.accumulate == 1 or not fitting:
            return ""
        return f"; or train.accumulate {', '.join(map(str, fitting))}"

    @property
    def peak_rate(self) -> float:
        """The learning rate after the warm-up."""
        return self.learning_rate * (self.batch / 256 if self.linear_scaling else 1.0)

    @property
    def shares(self) -> int:
        """The parts that a batch is divided into: the copies of the model."""
        return self.parallel.shares(self.ranks)

    @property
    def rank_batch(self) -> int:
        """Samples that one rank computes at once."""
        return self.batch // (self.shares * self.accumulate)


class WorkloadSettings(Section):
    """The settings that all workloads have; a workload adds its own."""

    data: str | None = None
    """A folder with the user's data; None: synthetic data, generated when needed."""
    target: float | None = None
    """The quality to reach; None: the target for synthetic data."""
    models: int | None = Field(default=None, ge=1, le=65536)
    """Base models of this workload; None: ``bagging.models``."""
    train: TrainSettings = TrainSettings()
