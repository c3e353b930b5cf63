"""Settings for training: those in table 2 of HPC AI500 V3.0, its duration and its evaluation."""

from __future__ import annotations

import itertools
from typing import Annotated, Literal

from pydantic import Field, model_validator

from vflops.config.divisors import divisors
from vflops.config.frameworks import FRAMEWORKS, FrameworkName
from vflops.config.parallel import CommunicationSettings, ParallelSettings
from vflops.config.section import Section

Optimizer = Literal["sgd", "adam", "adamw", "adagrad", "lars", "lamb", "muon"]
Schedule = Literal["cosine", "polynomial", "step", "constant"]
TrainingPrecision = Literal[
    "fp32", "tf32", "fp16", "bf16", "fp8", "mixed-fp16", "mixed-bf16", "mixed-fp8", "mixed-int8"
]
CEILING_PRECISIONS: dict[str, str] = {
    "fp32": "fp32",
    "tf32": "tf32",
    "fp16": "fp16",
    "bf16": "bf16",
    "fp8": "fp8",
    "mixed-fp16": "fp16",
    "mixed-bf16": "bf16",
    "mixed-fp8": "fp8",
    "mixed-int8": "int8",
}
"""For each training precision, the precision of the ceiling that bounds it."""
EIGHT_BIT_PRECISIONS = ("fp8", "mixed-fp8", "mixed-int8")
"""The training precisions with 8-bit matrix products."""
BF16_WEIGHTS = ("bf16", "fp8")
"""The training precisions whose weights and optimizer state are in bf16."""
BatchNorm = Literal["local", "synchronised"]
StopBy = Literal["quality", "loss"]
Compile = Literal["auto", "on", "off", "record"]


_POWER = 2.0
_BETAS = (0.9, 0.999)
MAX_BATCH = 1 << 31


class TrainSettings(Section):
    """How a model is trained; the same for all workloads."""

    epochs: int = Field(default=1, ge=1, le=100_000)
    batch: int = Field(default=64, ge=1, le=MAX_BATCH)
    """Samples per parameter update, over all ranks."""
    batch_per_rank: int | None = Field(default=None, ge=1, le=MAX_BATCH)
    """Samples per parameter update of each rank, from which ``batch`` is computed when the settings
    of a run are loaded, unless ``batch`` is given; a run records only its ``batch``."""
    accumulate: int = Field(default=1, ge=1, le=MAX_BATCH)
    """Number of parts of a batch that are computed one after the other to fit into memory; for a
    pipeline, the number of micro-batches."""
    ranks: int = Field(default=1, ge=1, le=65536)
    """Number of processes that train one model together (P), with one accelerator each."""
    parallel: ParallelSettings = ParallelSettings()
    communication: CommunicationSettings = CommunicationSettings()
    device: str = "auto"
    """``auto`` is the accelerator if there is one, else the CPU."""
    framework: FrameworkName = "pytorch"
    """The framework that computes the steps. All train the same network from the same weights on
    the same samples; those besides PyTorch offer image classification."""

    optimizer: Optimizer = "sgd"
    learning_rate: float = Field(default=0.1, gt=0)
    """Peak learning rate; with ``linear_scaling``, the rate for a batch of 256."""
    linear_scaling: bool = False
    """Whether the learning rate is multiplied by batch / 256."""
    schedule: Schedule = "cosine"
    warmup_epochs: float = Field(default=0.0, ge=0)
    milestones: tuple[float, ...] = ()
    """Epochs after which the schedule ``step`` divides the learning rate by ten."""
    power: float = Field(default=_POWER, gt=0, le=100)
    """The exponent of the schedule ``polynomial``; 1 for a straight line."""
    end_rate: float = Field(default=0.0, ge=0)
    """The learning rate at the end of the schedule ``polynomial``."""
    schedule_epochs: int | None = Field(default=None, ge=1, le=100_000)
    """Epochs from the start of training to the end of the schedules ``cosine`` and ``polynomial``;
    None for ``epochs``. In a search, None stands for the epochs of each candidate."""
    momentum: float = Field(default=0.9, ge=0, lt=1)
    nesterov: bool = False
    betas: tuple[Annotated[float, Field(ge=0, lt=1)], Annotated[float, Field(gt=0, lt=1)]] = _BETAS
    """The shares of the past in the moments of ``adam``, ``adamw`` and ``lamb``, and in those of
    ``muon`` for parameters whose steps it does not orthogonalise."""
    weight_decay: float = Field(default=0.0, ge=0)
    """Not applied to norms and biases."""

    precision: TrainingPrecision = "fp32"
    batch_norm: BatchNorm = "local"
    ghosts: int = Field(default=1, ge=1, le=MAX_BATCH)
    """Number of equal parts of a rank's batch that batch norm normalises separately (ghost batch
    norm)."""
    compile: Compile = "auto"
    """``auto`` compiles on accelerators; in a search it compiles the models that then finish
    sooner. ``record`` records steps as CUDA graphs without compilation or autotuning, which starts
    sooner but has slower steps."""
    deterministic: bool = False
    """Whether an accelerator uses only deterministic kernels, which are slower; it is an error if
    torch has none for an operator. A CPU always uses deterministic kernels."""

    evaluate_every: int = Field(default=1, ge=1)
    """Epochs between two evaluations; the last epoch is always evaluated."""
    end_epoch: int | None = Field(default=None, ge=1)
    """The epoch after which training ends early; None to train for all ``epochs``."""
    stop_at_target: bool = False
    patience: int | None = Field(default=None, ge=1)
    """Evaluations without improvement after which training ends; None to train for all epochs."""
    stop_by: StopBy = "quality"
    """The measure whose improvement ``patience`` waits for: the ``quality``, or the ``loss`` on the
    validation set."""
    checkpoint_s: float = Field(default=300.0, gt=0)
    """Maximum time between two checkpoints; each evaluation is preceded by a checkpoint as well."""
    checkpoint_share: float = Field(default=0.05, gt=0, le=1)
    """Maximum share of the time for checkpoints before evaluations; if they take longer, some are
    skipped. With 1, none are skipped."""
    commit_every: int | None = Field(default=None, ge=1)
    """Steps between two commitments, which let an audit compare the state of training; None for as
    many as take less than 0.4 % of the time."""
    segments: int = Field(default=10, ge=0, le=10_000)
    """Number of equal parts of training after each of which a checkpoint is kept, so that an audit
    can train any part again; 0 for none. In a search, 0 deletes the weights of its candidates at
    the end, and any other number keeps them."""
    readers: int = Field(default=4, ge=1, le=256)
    """Number of threads that read the next batches while an accelerator computes."""

    @model_validator(mode="after")
    def _is_consistent(self) -> TrainSettings:
        self.parallel.check(self.ranks, self.accumulate, self.batch // self.ghosts)
        self.communication.check(self.parallel, self.shares)
        self.communication.check_algorithm(self.parallel, self.shares, self.device)
        parts = self.shares * self.accumulate * self.ghosts
        if self.batch % parts:
            is_single_copy = self.shares == 1 < self.ranks
            unit = "copy of the model" if is_single_copy else "copies of the model"
            unit = "ranks" if self.shares == self.ranks else unit
            if parts > self.batch and self.shares > 1:
                most = max(n for n in divisors(self.batch) if n <= self.shares)
                raise ValueError(
                    f"batch {self.batch} is too small for {self.shares} {unit} × accumulation of "
                    f"{self.accumulate} × ghosts of {self.ghosts}: use at most {most} {unit}, or a "
                    f"batch that is a multiple of {parts}"
                )
            raise ValueError(
                f"batch {self.batch} cannot be divided evenly by {self.shares} {unit} × "
                f"{self.accumulate} accumulation × {self.ghosts} ghosts: "
                f"the nearest valid batch is {max(round(self.batch / parts), 1) * parts}"
                f"{self._accumulate_advice()}"
            )
        if self.warmup_epochs >= self.epochs and self.warmup_epochs > 0:
            raise ValueError(
                f"warmup_epochs {self.warmup_epochs:g} is not less than the {self.epochs} epochs: "
                "use a smaller value, or none: --set train.warmup_epochs=0"
            )
        self._check_framework()
        self._check_schedule()
        if bool(self.milestones) != (self.schedule == "step"):
            raise ValueError(
                f"milestones {list(self.milestones)} do not fit schedule {self.schedule!r}: "
                "the schedule step needs milestones, and no other schedule has them"
            )
        is_increasing = all(a < b for a, b in itertools.pairwise(self.milestones))
        if not is_increasing or any(not 0 < epoch < self.epochs for epoch in self.milestones):
            raise ValueError(
                f"milestones {list(self.milestones)} are not increasing epochs between 0 and "
                f"{self.epochs}"
            )
        if self.precision == "fp16" and self.optimizer not in ("sgd", "lars"):
            raise ValueError(
                f"{self.optimizer} keeps squares of gradients, which pure fp16 cannot hold: "
                "use precision mixed-fp16, or optimizer sgd or lars"
            )
        self._check_bf16_weights()
        if self.betas != _BETAS and self.optimizer not in ("adam", "adamw", "lamb", "muon"):
            raise ValueError(
                f"{self.optimizer} has no betas: leave out train.betas, or use optimizer adamw"
            )
        if self.precision in EIGHT_BIT_PRECISIONS and self.parallel.divides_channels:
            raise ValueError(
                f"{self.precision} multiplies whole layers, but parallel.split tensor divides "
                "their channels: use parallel.mode data, sharded or pipeline"
            )
        if self.nesterov and (self.optimizer != "sgd" or self.momentum == 0):
            raise ValueError("nesterov needs optimizer sgd with a momentum above 0")
        if self.ghosts > 1 and self.batch_norm == "synchronised":
            raise ValueError(
                "ghosts split a batch, but synchronised batch norm needs it whole: choose one"
            )
        return self

    def _check_framework(self) -> None:
        """Raise ``ValueError`` if the framework does not offer one of the other settings."""
        if self.framework == "pytorch":
            return
        framework, name = FRAMEWORKS[self.framework], self.framework
        for setting, offered, chosen in (
            ("optimizer", framework.optimizers, self.optimizer),
            ("precision", framework.precisions, self.precision),
        ):
            if chosen not in offered:
                raise ValueError(
                    f"{framework.title} is offered with {setting} {_listed(offered)}, not "
                    f"{chosen}: use train.{setting}={offered[0]} or train.framework=pytorch"
                )
        if self.ranks > 1 and not framework.several_ranks:
            raise ValueError(
                f"{framework.title} trains a model with one rank here, not {self.ranks}: train "
                "several models (--models) or use train.framework=pytorch"
            )
        unlike = {
            "parallel": self.parallel != ParallelSettings(),
            "communication": self.communication != CommunicationSettings(),
            "batch_norm": self.batch_norm != "local",
            "ghosts": self.ghosts > 1,
            "compile": self.compile != "auto",
            "deterministic": self.deterministic,
        }
        for setting in (setting for setting, changed in unlike.items() if changed):
            raise ValueError(
                f"train.{setting} is not offered with framework {name}: leave it out or use "
                "train.framework=pytorch"
            )

    def _check_schedule(self) -> None:
        """Raise ``ValueError`` if settings of the schedule contradict each other."""
        if self.schedule_epochs is not None and self.schedule_epochs < self.epochs:
            raise ValueError(
                f"schedule_epochs {self.schedule_epochs} is less than the {self.epochs} epochs: "
                f"the schedule would end before training, use --set train.schedule_epochs="
                f"{self.epochs} or more"
            )
        if self.schedule != "polynomial" and (self.power, self.end_rate) != (_POWER, 0.0):
            raise ValueError(
                f"power {self.power:g} and end_rate {self.end_rate:g} do not fit schedule "
                f"{self.schedule!r}: use --set train.schedule=polynomial, or --set train.power="
                f"{_POWER:g} --set train.end_rate=0"
            )
        if self.end_rate > self.peak_rate:
            raise ValueError(
                f"end_rate {self.end_rate:g} is more than {self.peak_rate:g}, the rate that the "
                "schedule starts from: use a smaller --set train.end_rate"
            )

    def _check_bf16_weights(self) -> None:
        if self.precision not in BF16_WEIGHTS:
            return
        mixed = f"mixed-{self.precision}"
        if self.optimizer != "adamw":
            raise ValueError(
                f"precision {self.precision} rounds weights to bf16 stochastically, which only "
                f"adamw does, not {self.optimizer}: use precision {mixed}, or optimizer adamw"
            )
        if self.ranks > 1:
            raise ValueError(
                f"precision {self.precision} was tested with one rank, not with {self.ranks}: use "
                f"precision {mixed}"
            )

    def _accumulate_advice(self) -> str:
        """Return ``; or train.accumulate 1, 2, 4`` with the values that fit the batch, if any."""
        part, rest = divmod(self.batch, self.shares * self.ghosts)
        fitting = [n for n in divisors(part) if n < 4 * self.accumulate]
        if rest or self.accumulate == 1 or not fitting:
            return ""
        return f"; or train.accumulate {', '.join(map(str, fitting))}"

    @property
    def peak_rate(self) -> float:
        """The learning rate after the warm-up."""
        return self.learning_rate * (self.batch / 256 if self.linear_scaling else 1.0)

    @property
    def shares(self) -> int:
        """The number of parts that a batch is divided into: one per copy of the model."""
        return self.parallel.shares(self.ranks)

    @property
    def rank_batch(self) -> int:
        """Samples that one rank computes at once."""
        return self.batch // (self.shares * self.accumulate)


class WorkloadSettings(Section):
    """The settings that all workloads have; each workload adds further ones."""

    data: str | None = None
    """A folder with the user's data; None for synthetic data, which is generated when needed."""
    target: float | None = None
    """The quality to reach; None for the target on synthetic data."""
    models: int | None = Field(default=None, ge=1, le=65536)
    """Number of base models of this workload; None for ``bagging.models``."""
    train: TrainSettings = TrainSettings()


def _listed(names: tuple[str, ...]) -> str:
    """Return ``a, b or c``."""
    *others, last = names
    return f"{', '.join(others)} or {last}" if others else last
