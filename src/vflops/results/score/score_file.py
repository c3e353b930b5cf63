"""``score.json``: every figure with the rules that it was made by."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from vflops.record.files.document import Data, Document
from vflops.record.formats.job import EnsembleSize, KernelTime
from vflops.record.formats.measurement import Unit
from vflops.results.score.node_outliers import NodesNamed
from vflops.results.score.parallelism import SharedScore
from vflops.results.score.twins import TwinsScore


class CeilingScore(Data):
    """One ceiling of the machine; its samples stay in the log."""

    benchmark: str
    case: str
    precision: str | None
    device: str
    unit: Unit
    value: float | None
    spread: float | None
    setting: dict[str, int | str]
    caveat: str | None
    reason: str | None


class RuleCount(Data):
    """Operations of one sample by one rule set."""

    rules: str
    rules_version: int
    ops_forward: int
    ops_backward: int
    ops_update: int
    ops_total: int
    uncounted_share: float
    """Elements touched by operators without a rule, of all elements touched."""


class BoundScore(Data):
    """What the ceilings allow a model at most."""

    precision: str
    rules: str
    batch: int
    flops: float
    samples_per_s: float
    bound_by: str
    bound_share: float
    """The part of the least time that this bound takes."""


class ModelScore(Data):
    """A counted model: its operations, and what bounds it here."""

    model: str
    parameters: int
    counts: tuple[RuleCount, ...]
    bound: BoundScore | None
    bound_reason: str | None


class WorkScore(Data):
    """Operations of one sample in training, and where the figure comes from."""

    source: Literal["counted", "declared", "declared graph"]
    """``counted``: from the graph of the model that ran; else as the user states it."""
    detail: str
    """The graph that was counted, or who declared it."""
    rules: str | None
    rules_version: int | None
    ops_forward: int
    ops_total: int


class QualityScore(Data):
    """What was reached, beside what should be."""

    name: str
    better: Literal["higher", "lower"]
    target: float
    profile_target: float | None
    """What the profile asks for; a run with another target is not comparable."""
    exponent: int
    achieved: float | None
    """At the last evaluation."""
    tested: float | None = None
    """On samples that were kept apart, after training; None: there are none."""
    penalty: float | None
    """(achieved / target)ⁿ: what FLOPS are multiplied with."""
    time_to_quality_s: float | None
    """From the start of the job's processes, all phases included; None: not reached."""
    epochs_to_quality: float | None


class SpeedScore(Data):
    """FLOPS by eq. 6: operations of the samples that were really processed, over the time."""

    samples_per_s: float
    ops_training: int
    ops_evaluation: int
    flops: float
    """Of training: over the time of training, waiting for data and checkpointing."""
    flops_evaluation: float | None
    flops_whole: float
    """All operations over all the time, start-up and compilation included."""
    vflops: float | None


class MfuScore(Data):
    """The share of the measured ceiling that training reached."""

    value: float | None
    ceiling_flops: float | None
    ceiling: str | None
    reason: str | None


class PowerScore(Data):
    """Mean power of the job; of what parts of the machine, and by which sensors."""

    power_w: float | None = None
    energy_j: float | None = None
    covered_s: float | None = None
    includes: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    reason: str | None = None
    """Why it was not measured."""
    shared_with: tuple[int, ...] = ()
    """Jobs that ran on the same machine at the same time, whose power these sensors told too."""


class NodeScore(Data):
    """A machine that trained models of an ensemble, or candidates of a search."""

    host: str
    machine: str
    """Its processor and accelerators."""
    jobs: tuple[int, ...]
    offset_s: float | None
    """Its clock less the controller's; None: not known, nothing was corrected."""
    uncertainty_s: float | None
    fault: str | None
    """Why its clock is not known."""
    trained_s: float
    """Between the first step there and the last."""
    power: PowerScore
    """Over that time; each sensor once, however many jobs there were."""
    accelerators: int
    """Whose utilisation was read."""
    utilisation: float | None
    """Their mean over that time, in %."""


class TrainingScore(Data):
    """One training of one workload."""

    job: int
    workload: str
    repeat: int
    seed: int
    model: int | None = None
    """Which base model of an ensemble, from 0; None: a training by itself."""
    complete: bool
    attempts: int
    device: str | None
    precision: str | None
    emulated: str | None
    """What to know where the device computes wider than the precision and converts."""
    layers_of_8_bits: int = 0
    """Whose matrix products are in fp8 or int8; of a pipeline those of the first rank."""
    ranks: int
    batch: int | None
    synthetic: bool
    skipped: int
    data_facts: dict[str, int | float | str] = Field(default_factory=dict)
    """What the workload knows of its data: sizes, classes, which split."""
    work: WorkScore | None
    samples_trained: int
    samples_redone: int
    samples_evaluated: int
    epochs: float
    phases: dict[str, float]
    """Seconds; they add up to ``wall_s``."""
    wall_s: float
    work_s: float
    """Training, waiting for data and checkpointing: what FLOPS are divided by."""
    quality: QualityScore
    speed: SpeedScore | None
    mfu: MfuScore
    power: PowerScore
    vflops_per_watt: float | None
    kernels: tuple[KernelTime, ...]
    shared: SharedScore | None = None
    """How its ranks shared the model; None for one rank."""


class Spread(Data):
    """Mean and coefficient of variation of one figure over repeated trainings."""

    mean: float
    variation: float


class RepeatScore(Data):
    """How far trainings with other seeds agree: HPC AI500's repeatability."""

    workload: str
    planned: int
    complete: int
    reached: int
    """Trainings that reached the target."""
    quality: Spread | None
    flops: Spread | None
    vflops: Spread | None = None
    """Its mean is what ranks."""
    epochs_to_quality: Spread | None
    """None unless every complete training reached the target."""


class CandidateScore(Data):
    """One architecture that a search tried."""

    candidate: str
    worker: int
    parent: str | None
    digest: str
    state: Literal["training", "trained", "failed", "cut"]
    """``cut``: the time was up; ``training``: its worker died and nobody went on."""
    accuracy: float | None
    """The best of its evaluations."""
    predicted: float | None
    """Of a warm-up round: what the search took it for."""
    epochs: float
    batch: int
    kernel: int | None
    """That kernels were grown to; None: they are as the search made them."""
    tuned: bool = False
    """Whether tuning chose batch and kernel."""
    parameters: int
    ops_per_sample: int
    ops: int
    """Of its training and its evaluations."""
    inherited: bool
    waited_s: float
    """For its proposal."""
    message: str | None
    """Why it failed."""


class SearchMoment(Data):
    """Where a search stood after some time."""

    time_s: float
    ops: int
    ops_per_s: float
    error: float | None
    """Of the best model by then."""
    regulated: float | None
    """−ln(error) · operations a second."""
    trained: int
    """Candidates whose training was over."""
    counts: bool
    """Whether the score may be this one: the warm-up, where rules leave it out, is over."""


class Deviation(Data):
    """Where a search is another than AIPerf's."""

    what: str
    conforms: str | None
    """The setting that does as the paper says; None: there is none."""
    fixed: bool = False
    """Whether the paper's table IV fixes it; else it is a default of the table, or of the text."""


class AiperfVerdict(Data):
    """Whether a search is a result by AIPerf's rules; it is scored in any case."""

    valid: bool
    broken: dict[str, str]
    """The rules that it breaks, each with the figure."""
    deviations: tuple[Deviation, ...]

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why it is none."""
        return tuple(self.broken.values())


class LostWorker(Data):
    """A worker of a search that died too often; the others went on without it."""

    job: int
    attempts: int
    reason: str
    trained: int
    """Candidates of its that have a result."""
    candidates: tuple[str, ...]
    """Those that it had begun: their steps count, they have no result."""


class SearchScore(Data):
    """A search by AIPerf's rules: all operations of all workers a second."""

    workload: str
    repeat: int
    seed: int
    workers: int
    ranks: int
    """Of each worker."""
    rules: str
    ordered: bool
    """Whether proposals depend on results in a fixed order."""
    searcher: str
    inherited: bool
    """Whether candidates start from their parents' weights."""
    replay: bool = False
    """Whether it trained what another search had found."""
    duration_s: float
    """From the first worker's beginning to the last work, or to the end of the last worker."""
    ops: int
    ops_per_s: float | None
    """The largest of all moments that count."""
    regulated: float | None
    """The largest −ln(error) · operations a second of those; None without an evaluation, or where
    no error is left."""
    last_ops_per_s: float | None
    """Of the last moment, as the published program reports it."""
    last_regulated: float | None
    converged: bool | None
    """Whether operations a second stood still in the last fifth of the time."""
    error: float | None
    """Of the best model."""
    error_limit: float
    winner: str | None
    """The candidate whose error that is, also one that the end cut."""
    candidates: tuple[CandidateScore, ...]
    moments: tuple[SearchMoment, ...]
    idle_share: float | None
    """Of the workers' time, between two candidates: waiting for proposals, and building."""
    waited_s: float = 0.0
    """Of all workers, for proposals."""
    built_s: float = 0.0
    """Of all workers, for networks and their parents' weights."""
    phases: dict[str, float] = Field(default_factory=dict)
    """Seconds of all workers by what they did: start-up, idle, building, then as of trainings."""
    prediction_error: float | None
    """Mean error of predicted accuracies, where the truth is known."""
    unbuilt: dict[str, str] = Field(default_factory=dict)
    """Candidates that could not so much as be begun, and why."""
    lost_workers: tuple[LostWorker, ...] = ()
    """Given up in the middle of the search."""
    clock_faults: tuple[str, ...] = ()
    clock_corrected_s: float = 0.0
    """The largest correction of a clock that the times rest on."""
    clock_unknown: tuple[int, ...] = ()
    """Jobs whose times stand as their node's own clock has them."""
    nodes: tuple[NodeScore, ...] = ()
    power: PowerScore = PowerScore()
    """Of all nodes over the search."""
    ops_per_watt: float | None = None
    """Operations a second for a watt."""
    utilisation: float | None = None
    """Of all accelerators, in %; None: no telemetry has it."""
    aiperf: AiperfVerdict


class EnsembleScore(Data):
    """Base models together: HPC AI500 V3.0's figure of a system."""

    workload: str
    repeat: int
    planned: int
    jobs: tuple[int, ...]
    """Those that are in it."""
    partial: bool
    """Whether a planned model is missing."""
    bootstrap: str
    quality_name: str
    target: float
    exponent: int
    achieved: float
    """By all of them together."""
    penalty: float
    """(achieved / target)ⁿ: what FLOPS are multiplied with."""
    sizes: tuple[EnsembleSize, ...]
    """How the quality grows with the number of models."""
    mean_quality: float
    """Of the models alone."""
    out_of_bag: float | None
    """The mean quality of the models on samples that each has not learned from."""
    waves: bool
    """Whether models waited for others: then nothing is said of weak scaling."""
    started_apart_s: float
    """Between the first steps of the first and the last model."""
    window_s: float
    """From the first step of the first model to the end of the last one's training."""
    ops_training: int
    flops: float | None
    """Operations of all models over the window."""
    flops_epoch: float | None
    """As published (equations 4 and 6): the operations of one epoch of all models over the time of
    an epoch, that of the slowest model."""
    vflops: float | None
    clock_corrected_s: float = 0.0
    """The largest correction of a clock that the window and the starts rest on."""
    clock_unknown: tuple[int, ...] = ()
    """Jobs whose times stand as their node's own clock has them."""
    nodes: tuple[NodeScore, ...] = ()
    power: PowerScore = PowerScore()
    """Of all nodes over the window, each while it trained."""
    vflops_per_watt: float | None = None
    utilisation: float | None = None
    """Of all accelerators, in %; None: no telemetry has it."""
    nodes_named: NodesNamed | None = None
    """Those that are slow or noisy beyond chance."""
    twins: TwinsScore | None = None
    """Those that compute something else; of a run of twins, which is a diagnostic and no claim."""


class Score(Document):
    """All figures of a run."""

    schema_name: ClassVar[str] = "vflops.score"

    run: str
    workload: str
    complete: bool
    incomplete_reason: str | None
    ceilings: tuple[CeilingScore, ...]
    models: tuple[ModelScore, ...]
    trainings: tuple[TrainingScore, ...] = ()
    repeats: tuple[RepeatScore, ...] = ()
    ensembles: tuple[EnsembleScore, ...] = ()
    searches: tuple[SearchScore, ...] = ()
