"""``score.json``: all figures, with the rules that they are based on."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer

from vflops.metrics.efficiency import vflops_per_watt
from vflops.metrics.quality import capped_factor
from vflops.metrics.summation import sum_in_order
from vflops.record.files.document import Data, Document
from vflops.record.formats.batch_ops import BatchOps
from vflops.record.formats.job import SampleUnit
from vflops.record.formats.job_events import EnsembleSize, KernelTime
from vflops.record.formats.measurement import Unit
from vflops.results.score.node_outliers import NodesNamed
from vflops.results.score.node_spread import NodeKindScore
from vflops.results.score.parallelism import SharedScore
from vflops.results.score.twins import TwinsScore
from vflops.results.task.task import Task, TaskKind


class CeilingScore(Data):
    """One ceiling of the machine. Its samples are only in the log."""

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
    node: str | None = None
    """The compute node that was measured, or the nodes that communicated; left out of the file if
    there is none."""
    kind: str | None = None
    """The kind of that node; left out of the file if there is none."""

    @model_serializer(mode="wrap")
    def _omit_absent_node(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        fields: dict[str, Any] = dump(self)
        absent = [name for name in ("node", "kind") if fields[name] is None]
        return {name: value for name, value in fields.items() if name not in absent}


class RuleCount(Data):
    """Operations of one sample by one counting convention."""

    rules: str
    rules_version: int
    ops_forward: int
    ops_backward: int
    ops_update: int
    ops_total: int
    uncounted_share: float
    """The share of elements that are processed by operators without a counting rule."""


class BoundScore(Data):
    """The highest speed of a model that the ceilings allow."""

    precision: str
    rules: str
    batch: int
    flops: float
    samples_per_s: float
    bound_by: str
    bound_share: float
    """The share of the minimum time that is bound by ``bound_by``."""


class ModelScore(Data):
    """A counted model: its operations, and its bound on this machine."""

    model: str
    parameters: int
    counts: tuple[RuleCount, ...]
    bound: BoundScore | None
    bound_reason: str | None


class UncountedOperator(Data):
    """An operator of the trained model that its counting convention does not cover."""

    op: str
    nodes: int
    """How often the model calls it."""
    executed_share: float
    """Its share of the operations that training executes."""
    foreign: bool = False
    """Whether its operations are not known: of another package, or one without any rule."""


class WorkScore(Data):
    """Training operations per sample, and where the figure comes from."""

    source: Literal["counted", "declared", "declared graph"]
    """``counted`` from the graph of the trained model, or declared by the user."""
    detail: str
    """The counted graph, or the source of the declaration."""
    rules: str | None
    rules_version: int | None
    ops_forward: int
    """Operations per sample, rounded down, for reading: figures are based on ``batch_ops``."""
    ops_total: int
    ops_executed: int | None = None
    """Operations by the convention ``executed``, which MFU is based on; None without a graph."""
    uncounted: tuple[UncountedOperator, ...] = ()
    batch_ops: BatchOps | None = None
    """The exact operations; None in a score of an older version."""
    batch_ops_executed: BatchOps | None = None
    """The same by the convention ``executed``; None without a graph."""

    @property
    def uncounted_share(self) -> float:
        """The share of the executed operations that ``rules`` do not cover."""
        return sum_in_order(operator.executed_share for operator in self.uncounted)

    @property
    def lacks_operations(self) -> bool:
        """Whether training executed more than the operators that ``rules`` cover."""
        return self.uncounted_share > 0 or any(operator.foreign for operator in self.uncounted)


class LossScore(Data):
    """The loss behind a quality that is exp(−loss), in nats per unit of a sample."""

    value: float | None
    """The loss at the last evaluation, −ln(quality); None if the quality is 0."""
    target: float
    """The loss of the target, −ln(target)."""
    floor: float | None
    """The loss of the source of the evaluated text itself; None if it is not known."""
    perplexity: float | None
    """exp(loss), 1 / quality."""
    bytes_per_token: float | None
    """None if the text is not known as bytes."""
    bits_per_byte: float | None
    """The loss / ln 2 / ``bytes_per_token``."""
    unit: str
    """What the loss is a mean over, such as ``token``."""


class QualityScore(Data):
    """The quality that training reached, and its target."""

    name: str
    better: Literal["higher", "lower"]
    target: float
    profile_target: float | None
    """The target of the profile. A run with another target is not comparable."""
    exponent: int
    achieved: float | None
    """The quality at the last evaluation."""
    tested: float | None = None
    """Quality on the test set after training; None without a test set."""
    penalty: float | None
    """The quality factor as published, (achieved / target)ⁿ; None without an evaluation, and if it
    is infinite because an error is 0."""
    penalty_capped: float | None = None
    """The quality factor, but at most 1."""
    time_to_quality_s: float | None
    """Seconds from the start of the job's processes, with all phases; None if not reached."""
    epochs_to_quality: float | None
    loss: LossScore | None = None
    """None if the quality does not follow from a loss."""

    @property
    def factor(self) -> float | None:
        """The quality factor of headlines and rankings, at most 1; None without an evaluation."""
        return None if self.achieved is None else capped_factor(self.penalty)

    @property
    def is_met(self) -> bool:
        """Whether the last evaluation reached the target."""
        return self.achieved is not None and (self.penalty is None or self.penalty >= 1)


class SpeedScore(Data):
    """FLOPS by eq. 6: operations of the samples actually processed / time."""

    samples_per_s: float
    """``samples_timed`` / ``work_s``."""
    units_per_s: float | None = None
    """``samples_timed`` × ``TrainingScore.unit.count`` / ``work_s``: tokens per second, for
    example; None if a sample has no units."""
    ops_training: int
    ops_evaluation: int
    flops: float
    """``ops_timed`` / ``work_s``: the time of training, waiting for data and checkpointing."""
    flops_evaluation: float | None
    """``ops_evaluation`` / the phase ``evaluation``."""
    flops_whole: float
    """All operations / ``wall_s``, including start-up and compilation."""
    vflops: float | None
    """Equation 7, ``flops`` × the quality factor: the figure ``vflops_published`` of
    ``results.figures``."""
    vflops_capped: float | None = None
    """``flops`` × the quality factor, but at most ``flops``: VFLOPS in headlines and rankings, the
    figure ``vflops`` of ``results.figures``."""
    samples_timed: int | None = None
    """The trained samples without those whose steps compiled kernels, since ``work_s`` does not
    include these steps."""
    ops_timed: int | None = None
    """Their training operations."""


class VendorScore(Data):
    """The share of the peak of the vendor's data sheet that training reached."""

    value: float | None
    """``MfuScore.flops`` / ``flops``."""
    flops: float
    """The dense peak in the precision of the training, of all devices."""
    source: str


class MfuScore(Data):
    """The share of the measured ceiling that training reached."""

    value: float | None
    flops: float | None = None
    """``ops_timed`` / ``work_s``."""
    ops_timed: int | None = None
    """Executed operations of the samples of ``SpeedScore.samples_timed``; declared ones if there
    is no graph."""
    ceiling_flops: float | None
    ceiling: str | None
    reason: str | None
    vendor: VendorScore | None = None
    """The same against the vendor's data sheet."""
    vendor_reason: str | None = None
    """Why there is no ``vendor``."""


class ConventionScore(Data):
    """The speed by one counting convention, to compare it with published figures."""

    rules: str
    rules_version: int
    batch_ops: BatchOps
    flops: float
    """Operations of ``SpeedScore.samples_timed`` / ``work_s``."""
    mfu: float | None
    """``flops`` / ``MfuScore.ceiling_flops``."""
    mfu_vendor: float | None
    """``flops`` / the peak of the vendor's data sheet."""


class PowerScore(Data):
    """Mean power, the parts of the machine that it includes, and their sensors."""

    power_w: float | None = None
    energy_j: float | None = None
    covered_s: float | None = None
    includes: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    reason: str | None = None
    """Why the power was not measured."""
    shared_with: tuple[int, ...] = ()
    """Other jobs on the same machine at the same time, whose power is included."""


class NodeScore(Data):
    """A machine that trained models of an ensemble, or candidates of a search."""

    host: str
    machine: str
    """A description of its processors and accelerators."""
    jobs: tuple[int, ...]
    offset_s: float | None
    """Its clock minus the controller's clock; None if not known, so that it is not corrected."""
    uncertainty_s: float | None
    fault: str | None
    """Why the offset of its clock is not known."""
    trained_s: float
    """Seconds between its first and last step."""
    power: PowerScore
    """Power over that time; each sensor counts once, even if several jobs read it."""
    accelerators: int
    """The number of accelerators with a utilisation reading."""
    utilisation: float | None
    """The mean utilisation of the accelerators over that time, in %."""


Slots = Literal["accelerators", "CPU shares"]
"""What the scale of a system counts: a CPU share is the cores of one rank."""


class ScaleScore(Data):
    """How much of the system computes in parallel: HPC AI500 V3.0, equations 3 to 5."""

    models: int
    """M: the models that were trained at the same time."""
    ranks: int
    """P: the ranks per model, one slot each."""
    sys_scale: int
    """The number of slots in use at once, M × P (equation 5)."""
    slots: Slots | None
    """None if the device is not known."""
    apc: int | None
    """Operations for one update of each of the M models (equation 4; equation 3 for M = 1); None
    if the operations per sample are not known."""


class TrainingScore(Data):
    """One training job of one workload."""

    job: int
    workload: str
    repeat: int
    seed: int
    model: int | None = None
    """The number of the base model in its ensemble, from 0; None without an ensemble."""
    complete: bool
    attempts: int
    device: str | None
    framework: str | None = None
    """The framework that trained the model and its version, such as ``JAX 0.10.2``; None for
    PyTorch, whose version the system description has."""
    precision: str | None
    emulated: str | None
    """A remark if the device emulates the precision in a wider one."""
    layers_of_8_bits: int = 0
    """The number of layers with products in fp8 or int8; in a pipeline, those of the first rank."""
    ranks: int
    batch: int | None
    synthetic: bool | None
    """None if that is not known, because a command reads its own data."""
    skipped: int
    data_facts: dict[str, int | float | str] = Field(default_factory=dict)
    """Facts about the data, such as sizes, classes and split."""
    unit: SampleUnit | None = None
    """What a sample consists of, such as tokens; None if speeds are quoted in samples."""
    work: WorkScore | None
    samples_trained: int
    samples_redone: int
    samples_evaluated: int
    epochs: float
    phases: dict[str, float]
    """Seconds by phase, which add up to ``wall_s``."""
    wall_s: float
    work_s: float
    """Seconds of training, waiting for data and checkpointing, over which FLOPS are computed."""
    quality: QualityScore
    speed: SpeedScore | None
    mfu: MfuScore
    conventions: tuple[ConventionScore, ...] = ()
    """The speed by the conventions for transformers; empty for other models."""
    power: PowerScore
    vflops_per_watt: float | None
    """``speed.vflops``, as published, / the mean power."""
    vflops_capped_per_watt: float | None = None
    """``speed.vflops_capped`` / the mean power: VFLOPS per watt in headlines and rankings."""
    kernels: tuple[KernelTime, ...]
    shared: SharedScore | None = None
    """How ranks shared the model; None for a single rank."""
    task: TaskKind | None = None
    """Whether its task is closed; ``Score.tasks`` has the details."""
    scale: ScaleScore | None = None
    """None for a base model, whose ensemble has a scale."""

    @property
    def capped_vflops(self) -> float | None:
        """``speed.vflops_capped``, also in scores of versions that did not write it."""
        if self.speed is None:
            return None
        is_older = self.quality.achieved is not None and self.quality.penalty_capped is None
        return _capped_vflops(
            self.speed.flops, self.speed.vflops, self.speed.vflops_capped, is_older=is_older
        )

    @property
    def capped_vflops_per_watt(self) -> float | None:
        """``vflops_capped_per_watt``, also in scores of versions that did not write it."""
        return _per_watt(self.capped_vflops, self.vflops_capped_per_watt, self.power)


class Spread(Data):
    """Mean and coefficient of variation of one figure over repeats."""

    mean: float
    variation: float


class RepeatScore(Data):
    """How far repeats with different seeds agree: HPC AI500's repeatability."""

    workload: str
    planned: int
    complete: int
    """The number of repeats that finished; of ensembles, with all their models."""
    reached: int
    """The number of repeats that reached the target."""
    quality: Spread | None
    flops: Spread | None
    vflops: Spread | None = None
    """Of equation 7, as published."""
    epochs_to_quality: Spread | None
    """None unless every complete repeat reached the target."""
    vflops_capped: Spread | None = None
    """With a quality factor of at most 1; rankings use the mean."""
    time_to_quality_s: Spread | None = None
    """None unless every complete repeat reached the target."""
    task: TaskKind | None = None
    models: int | None = None
    """The planned number of base models if ensembles were repeated; None for single models."""


class CandidateScore(Data):
    """One architecture that a search tried."""

    candidate: str
    worker: int
    parent: str | None
    digest: str
    state: Literal["training", "trained", "failed", "cut"]
    """``cut`` if the search ended first; ``training`` if its worker died and did not resume."""
    accuracy: float | None
    """The accuracy at its best evaluation."""
    predicted: float | None
    """The predicted accuracy, which the search uses in warm-up rounds."""
    epochs: float
    batch: int
    kernel: int | None
    """The size to which kernels were enlarged; None if unchanged."""
    tuned: bool = False
    """Whether batch and kernel size were tuned."""
    parameters: int
    ops_per_sample: int
    """Training operations per sample, rounded down, for reading."""
    ops: int
    """Operations of its training and its evaluations."""
    samples: int | None = None
    """The samples that it was trained on; None in a score of an older version."""
    evaluated: int | None = None
    """The samples of its evaluations."""
    batch_ops: BatchOps | None = None
    """The exact operations of a batch; None if the run is of an older version."""
    inherited: bool
    waited_s: float
    """Seconds that the worker waited for the proposal."""
    message: str | None
    """Why it failed."""


class SearchMoment(Data):
    """The state of a search at one time."""

    time_s: float
    ops: int
    ops_per_s: float
    error: float | None
    """The error of the best model so far."""
    regulated: float | None
    """−ln(error) · operations per second."""
    trained: int
    """The number of candidates whose training had ended."""
    counts: bool
    """Whether it may be the score, that is, a warm-up that the rules exclude is over."""


class Deviation(Data):
    """A difference between a search and AIPerf's."""

    what: str
    conforms: str | None
    """The setting that conforms to the paper; None if no setting does."""
    fixed: bool = False
    """Whether table IV of the paper requires it; otherwise it is a default of the paper."""


SearchEnding = Literal["planned", "converged", "stopped"]
"""A search ended as planned, by itself because its score had converged, or the user stopped it."""


class AiperfVerdict(Data):
    """Whether a search is a valid result by AIPerf's rules. It is scored in any case."""

    valid: bool
    broken: dict[str, str]
    """The broken rules, each with the reason."""
    deviations: tuple[Deviation, ...]

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why the search is not valid."""
        return tuple(self.broken.values())


class LostWorker(Data):
    """A worker of a search that failed too often and was given up."""

    job: int
    attempts: int
    reason: str
    trained: int
    """The number of its candidates with a result."""
    candidates: tuple[str, ...]
    """Its unfinished candidates. Their steps count, but they have no result."""


class SearchScore(Data):
    """A search, scored by AIPerf's rules: the operations of all workers per second."""

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
    """Whether it replayed the candidates of another search."""
    duration_s: float
    """Seconds from the start of the first worker to the end of the last."""
    ops: int
    ops_per_s: float | None
    """The largest value over all moments that count."""
    regulated: float | None
    """The largest −ln(error) · operations per second over these moments; None without an
    evaluation, and for an error of 0, for which it is not defined."""
    last_ops_per_s: float | None
    """The value of the last moment, as the published program reports it."""
    last_regulated: float | None
    converged: bool | None
    """Whether operations per second were stable in the last fifth of the time."""
    variation: float | None = None
    """(largest − smallest) / mean of the operations per second in that fifth."""
    ending: SearchEnding | None = None
    """How it ended; None if it did not."""
    error: float | None
    """The error of the best model."""
    error_limit: float
    winner: str | None
    """The candidate with that error, which the end of the search may have cut off."""
    candidates: tuple[CandidateScore, ...]
    moments: tuple[SearchMoment, ...]
    idle_share: float | None
    """The share of the workers' time between candidates, spent on waiting and building."""
    waited_s: float = 0.0
    """Seconds that workers waited for proposals, summed over workers."""
    built_s: float = 0.0
    """Seconds that workers built networks and loaded weights, summed over workers."""
    phases: dict[str, float] = Field(default_factory=dict)
    """Seconds of all workers by activity: start-up, idle, building, and the phases of training."""
    prediction_error: float | None
    """The mean error of predicted accuracies, for candidates with a known accuracy."""
    unbuilt: dict[str, str] = Field(default_factory=dict)
    """Candidates that could not be built, and why."""
    lost_workers: tuple[LostWorker, ...] = ()
    """Workers that failed too often during the search."""
    clock_faults: tuple[str, ...] = ()
    clock_corrected_s: float = 0.0
    """The largest clock correction behind the times."""
    clock_unknown: tuple[int, ...] = ()
    """Jobs whose times are not corrected, because the offset of their clock is unknown."""
    nodes: tuple[NodeScore, ...] = ()
    power: PowerScore = PowerScore()
    """The power of all nodes over the search."""
    ops_per_watt: float | None = None
    """Operations per second and watt."""
    utilisation: float | None = None
    """The mean utilisation of all accelerators, in %; None if not recorded."""
    aiperf: AiperfVerdict
    task: TaskKind | None = None
    """Whether its task is closed; ``Score.tasks`` has the details."""


class EnsembleMoment(Data):
    """The base models combined at one of their evaluations."""

    time_s: float
    """Seconds from the start of the first process of any model until the last model had finished
    the evaluation."""
    step: int
    epoch: float
    quality: float


class EnsembleScore(Data):
    """The base models of an ensemble together: HPC AI500 V3.0's figure for a system."""

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
    """The quality of the combined predictions of all models."""
    penalty: float | None
    """The quality factor, (achieved / target)ⁿ; None if it is infinite because an error is 0."""
    penalty_capped: float | None = None
    """The quality factor, but at most 1."""
    sizes: tuple[EnsembleSize, ...]
    """How the quality grows with the number of models."""
    mean_quality: float
    """The mean quality of the single models."""
    best_quality: float | None = None
    """The best quality of a single model; None in scores of older versions."""
    beats: Literal["best", "mean", "none"] | None = None
    """Whether the ensemble is better than every single model (``best``), or at least than their
    mean; None in scores of older versions."""
    loss: LossScore | None = None
    """The loss behind the quality of the ensemble; None if the quality does not follow from it."""
    mean_loss: float | None = None
    """The mean loss of the single models; None without ``loss``, and if it is infinite."""
    out_of_bag: float | None
    """The mean quality of the models on their out-of-bag samples."""
    waves: bool
    """Whether models waited for others, so that weak scaling cannot be claimed."""
    started_apart_s: float
    """Seconds between the first steps of the first and of the last model."""
    window_s: float
    """Seconds from the first step of any model to the end of the last model's training."""
    ops_training: int
    flops: float | None
    """Operations of all models / the window."""
    flops_epoch: float | None
    """FLOPS as published (equations 4 and 6): ``ops_epoch`` / ``epoch_s``."""
    ops_epoch: int | None = None
    """Operations of one epoch of all models; None without ``flops_epoch``."""
    epoch_s: float | None = None
    """The epoch time of the slowest model; None without ``flops_epoch``."""
    vflops: float | None
    """Equation 7, ``flops`` × the quality factor, as published."""
    vflops_capped: float | None = None
    """``flops`` × the quality factor, but at most ``flops``: VFLOPS in headlines and rankings."""
    clock_corrected_s: float = 0.0
    """The largest clock correction behind the window and the starts."""
    clock_unknown: tuple[int, ...] = ()
    """Jobs whose times are not corrected, because the offset of their clock is unknown."""
    nodes: tuple[NodeScore, ...] = ()
    power: PowerScore = PowerScore()
    """The power of all nodes: their energy while they trained / the window."""
    vflops_per_watt: float | None = None
    """``vflops``, as published, / the mean power."""
    vflops_capped_per_watt: float | None = None
    """``vflops_capped`` / the mean power: VFLOPS per watt in headlines and rankings."""
    utilisation: float | None = None
    """The mean utilisation of all accelerators, in %; None if not recorded."""
    nodes_named: NodesNamed | None = None
    """Nodes that are slow or noisy beyond chance."""
    twins: TwinsScore | None = None
    """Verdicts on twins. Twins are a diagnostic of the nodes, not a result."""
    task: TaskKind | None = None
    """Whether its task is closed; ``Score.tasks`` has the details."""
    scale: ScaleScore | None = None
    moments: tuple[EnsembleMoment, ...] = ()
    """The evaluations at which the predictions of all models were combined; empty in runs of older
    versions."""
    time_to_quality_s: float | None = None
    """Seconds until the models together first reached the target; None if they did not, and in
    runs of older versions."""
    epochs_to_quality: float | None = None

    @property
    def factor(self) -> float:
        """The quality factor of headlines and rankings, at most 1."""
        return capped_factor(self.penalty)

    @property
    def is_met(self) -> bool:
        """Whether the combined predictions reached the target."""
        return self.penalty is None or self.penalty >= 1

    @property
    def capped_vflops(self) -> float | None:
        """``vflops_capped``, also in scores of versions that did not write it."""
        is_older = self.penalty_capped is None
        return _capped_vflops(self.flops, self.vflops, self.vflops_capped, is_older=is_older)

    @property
    def capped_vflops_per_watt(self) -> float | None:
        """``vflops_capped_per_watt``, also in scores of versions that did not write it."""
        return _per_watt(self.capped_vflops, self.vflops_capped_per_watt, self.power)


def _capped_vflops(
    flops: float | None, vflops: float | None, capped: float | None, *, is_older: bool
) -> float | None:
    """Return ``capped``, or its value if the score is of a version that did not write it.

    FLOPS times a factor of at most 1 are exactly the smaller of FLOPS and VFLOPS. If such a score
    has no VFLOPS, its factor was infinite. A rehearsal has none of these figures.
    """
    if capped is not None or not is_older or flops is None:
        return capped
    return flops if vflops is None else min(flops, vflops)


def _per_watt(capped: float | None, recorded: float | None, power: PowerScore) -> float | None:
    """Return ``recorded``; for an older version, the capped VFLOPS / the mean power."""
    if recorded is not None or capped is None:
        return recorded
    return vflops_per_watt(vflops=capped, power_w=power.power_w)


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
    tasks: tuple[Task, ...] = ()
    """The tasks of the run, one per workload."""
    node_kinds: tuple[NodeKindScore, ...] = ()
    """The measured compute nodes by kind; left out of the file if there are none."""
    rehearsal: bool = False
    """Whether ranks shared devices to try a layout, so that there is no score; left out of the
    file otherwise."""

    @model_serializer(mode="wrap")
    def _omit_absent_facts(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        fields: dict[str, Any] = dump(self)
        for name in ("node_kinds", "rehearsal"):
            if not fields[name]:
                del fields[name]
        return fields

    def task(self, workload: str) -> Task | None:
        """Return the task of a workload; None for a score of an older version."""
        return next((task for task in self.tasks if task.workload == workload), None)
