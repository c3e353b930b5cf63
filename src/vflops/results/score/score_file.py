"""``score.json``: every figure with the rules that it is based on."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from vflops.record.files.document import Data, Document
from vflops.record.formats.job_events import EnsembleSize, KernelTime
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
    """Operations of one sample by one counting convention."""

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
    """The share of the least time under this bound."""


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
    """``counted``: from the graph of the model that ran; otherwise declared by the user."""
    detail: str
    """The counted graph, or the source of the declaration."""
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
    """The target of the profile; a run with another target is not comparable."""
    exponent: int
    achieved: float | None
    """At the last evaluation."""
    tested: float | None = None
    """Quality on the test set after training; None without a test set."""
    penalty: float | None
    """The quality factor, (achieved / target)ⁿ."""
    time_to_quality_s: float | None
    """From the start of the job's processes, with all phases; None: not reached."""
    epochs_to_quality: float | None


class SpeedScore(Data):
    """FLOPS by eq. 6: operations of the samples that were really processed, over the time."""

    samples_per_s: float
    ops_training: int
    ops_evaluation: int
    flops: float
    """Of training, over the time of training, waiting for data and checkpointing."""
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
    """Jobs on the same machine at the same time, whose power these sensors include."""


class NodeScore(Data):
    """A machine that trained models of an ensemble, or candidates of a search."""

    host: str
    machine: str
    """Its processor and accelerators."""
    jobs: tuple[int, ...]
    offset_s: float | None
    """Its clock minus the controller's; None: not known, not corrected."""
    uncertainty_s: float | None
    fault: str | None
    """Why its clock is not known."""
    trained_s: float
    """Seconds between its first and last step."""
    power: PowerScore
    """Over that time; each sensor counts once, however many jobs ran."""
    accelerators: int
    """The number of accelerators with a utilisation reading."""
    utilisation: float | None
    """The mean of the accelerators over that time, in %."""


class TrainingScore(Data):
    """One training of one workload."""

    job: int
    workload: str
    repeat: int
    seed: int
    model: int | None = None
    """The base model of an ensemble, from 0; None: a single training."""
    complete: bool
    attempts: int
    device: str | None
    precision: str | None
    emulated: str | None
    """A remark if the device computes in a wider precision and converts."""
    layers_of_8_bits: int = 0
    """Layers with matrix products in fp8 or int8; in a pipeline those of the first rank."""
    ranks: int
    batch: int | None
    synthetic: bool
    skipped: int
    data_facts: dict[str, int | float | str] = Field(default_factory=dict)
    """Facts of the workload's data: sizes, classes, split."""
    work: WorkScore | None
    samples_trained: int
    samples_redone: int
    samples_evaluated: int
    epochs: float
    phases: dict[str, float]
    """Seconds; they add up to ``wall_s``."""
    wall_s: float
    work_s: float
    """Time of training, waiting for data and checkpointing, by which FLOPS are divided."""
    quality: QualityScore
    speed: SpeedScore | None
    mfu: MfuScore
    power: PowerScore
    vflops_per_watt: float | None
    kernels: tuple[KernelTime, ...]
    shared: SharedScore | None = None
    """How ranks shared the model; None for one rank."""


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
    """The mean decides the rank."""
    epochs_to_quality: Spread | None
    """None unless every complete training reached the target."""


class CandidateScore(Data):
    """One architecture that a search tried."""

    candidate: str
    worker: int
    parent: str | None
    digest: str
    state: Literal["training", "trained", "failed", "cut"]
    """``cut``: the time was up; ``training``: its worker died and it was not resumed."""
    accuracy: float | None
    """Its best evaluation."""
    predicted: float | None
    """In a warm-up round: the accuracy that the search used."""
    epochs: float
    batch: int
    kernel: int | None
    """The size that kernels were enlarged to; None: unchanged."""
    tuned: bool = False
    """Whether batch and kernel were tuned."""
    parameters: int
    ops_per_sample: int
    ops: int
    """Operations of its training and its evaluations."""
    inherited: bool
    waited_s: float
    """Seconds until its proposal was ready."""
    message: str | None
    """Why it failed."""


class SearchMoment(Data):
    """Where a search stood after some time."""

    time_s: float
    ops: int
    ops_per_s: float
    error: float | None
    """The error of the best model so far."""
    regulated: float | None
    """−ln(error) · operations per second."""
    trained: int
    """Candidates whose training had ended."""
    counts: bool
    """Whether it may be the score: the warm-up, if the rules exclude it, is over."""


class Deviation(Data):
    """Where a search is another than AIPerf's."""

    what: str
    conforms: str | None
    """The setting that conforms to the paper; None if there is none."""
    fixed: bool = False
    """Whether the paper's table IV fixes it; otherwise it is a default of table or text."""


class AiperfVerdict(Data):
    """Whether a search is a result by AIPerf's rules; it is scored in any case."""

    valid: bool
    broken: dict[str, str]
    """The broken rules, each with the reason."""
    deviations: tuple[Deviation, ...]

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why it is not valid."""
        return tuple(self.broken.values())


class LostWorker(Data):
    """A worker of a search that died too often; the others went on without it."""

    job: int
    attempts: int
    reason: str
    trained: int
    """Its candidates with a result."""
    candidates: tuple[str, ...]
    """Its unfinished candidates: their steps count, but they have no result."""


class SearchScore(Data):
    """A search by AIPerf's rules: all operations of all workers a second."""

    workload: str
    repeat: int
    seed: int
    workers: int
    ranks: int
    """Ranks per worker."""
    rules: str
    ordered: bool
    """Whether proposals depend on results in a fixed order."""
    searcher: str
    inherited: bool
    """Whether candidates start from their parents' weights."""
    replay: bool = False
    """Whether it trained the candidates of another search."""
    duration_s: float
    """From the start of the first worker to the end of the last."""
    ops: int
    ops_per_s: float | None
    """The largest value of all moments that count."""
    regulated: float | None
    """The largest −ln(error) · operations per second of these; None without an evaluation, or if
    the error is 0."""
    last_ops_per_s: float | None
    """The value of the last moment, as the published program reports it."""
    last_regulated: float | None
    converged: bool | None
    """Whether operations per second were stable in the last fifth of the time."""
    error: float | None
    """Of the best model."""
    error_limit: float
    winner: str | None
    """The candidate with that error, also if the end of the search cut it."""
    candidates: tuple[CandidateScore, ...]
    moments: tuple[SearchMoment, ...]
    idle_share: float | None
    """The share of the workers' time between candidates: waiting and building."""
    waited_s: float = 0.0
    """Seconds that all workers waited for proposals."""
    built_s: float = 0.0
    """Seconds that all workers spent building networks and loading weights."""
    phases: dict[str, float] = Field(default_factory=dict)
    """Seconds of all workers by activity: start-up, idle, building, then as for trainings."""
    prediction_error: float | None
    """Mean error of predicted accuracies, for candidates whose accuracy is known."""
    unbuilt: dict[str, str] = Field(default_factory=dict)
    """Candidates that could not be built, and why."""
    lost_workers: tuple[LostWorker, ...] = ()
    """Workers that were given up during the search."""
    clock_faults: tuple[str, ...] = ()
    clock_corrected_s: float = 0.0
    """The largest clock correction behind the times."""
    clock_unknown: tuple[int, ...] = ()
    """Jobs whose times are not corrected."""
    nodes: tuple[NodeScore, ...] = ()
    power: PowerScore = PowerScore()
    """The power of all nodes over the search."""
    ops_per_watt: float | None = None
    """Operations per second and watt."""
    utilisation: float | None = None
    """The mean of all accelerators, in %; None if not recorded."""
    aiperf: AiperfVerdict


class EnsembleScore(Data):
    """Base models together: HPC AI500 V3.0's figure of a system."""

    workload: str
    repeat: int
    planned: int
    jobs: tuple[int, ...]
    """The jobs in the ensemble."""
    partial: bool
    """Whether a planned model is missing."""
    bootstrap: str
    quality_name: str
    target: float
    exponent: int
    achieved: float
    """The quality of all models together."""
    penalty: float
    """The quality factor, (achieved / target)ⁿ."""
    sizes: tuple[EnsembleSize, ...]
    """How the quality grows with the number of models."""
    mean_quality: float
    """The mean quality of the single models."""
    out_of_bag: float | None
    """The mean quality of the models on their out-of-bag samples."""
    waves: bool
    """Whether models waited for others: then there is no claim of weak scaling."""
    started_apart_s: float
    """Between the first steps of the first and the last model."""
    window_s: float
    """From the first step of the first model to the end of the last one's training."""
    ops_training: int
    flops: float | None
    """Operations of all models over the window."""
    flops_epoch: float | None
    """As published (equations 4 and 6): the operations of one epoch of all models / the epoch time
    of the slowest model."""
    vflops: float | None
    clock_corrected_s: float = 0.0
    """The largest clock correction behind the window and the starts."""
    clock_unknown: tuple[int, ...] = ()
    """Jobs whose times are not corrected."""
    nodes: tuple[NodeScore, ...] = ()
    power: PowerScore = PowerScore()
    """The power of all nodes over the window, each while it trained."""
    vflops_per_watt: float | None = None
    utilisation: float | None = None
    """The mean of all accelerators, in %; None if not recorded."""
    nodes_named: NodesNamed | None = None
    """Nodes that are slow or noisy beyond chance."""
    twins: TwinsScore | None = None
    """Verdicts on twins, which are a diagnostic of the nodes and not a result."""


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
