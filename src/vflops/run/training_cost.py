"""Operations, bytes, memory and time that a plan of base models needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vflops.config.training import BF16_WEIGHTS, CEILING_PRECISIONS, TrainSettings
from vflops.counting.count import Count
from vflops.launch.placement import Placement, Plan
from vflops.metrics import out_of_bag_samples
from vflops.metrics.training_time import training_steps, training_time_s
from vflops.record.files.document import Data
from vflops.record.formats.batch_ops import BatchOps
from vflops.results.roofline.analysis import Ceilings, bound
from vflops.results.score.score_file import TrainingScore
from vflops.train.parallel.footprint import MODEL_STATE, Footprint
from vflops.units import integer, quantity, seconds

_MAX_CHECKPOINTS = 3
"""Checkpoints of a model on disk at once, besides those for audits: two, and one being written."""
_MAX_NAMED_NODES = 4
"""Maximum number of nodes of a model that are all named."""
_HOURS_FROM_S = 3 * 3600.0
"""Times of this length or longer are shown in hours."""
_OPTIMIZER_STATES = {
    "sgd": 1,
    "adam": 2,
    "adamw": 2,
    "adagrad": 1,
    "lars": 1,
    "lamb": 2,
    "muon": 2,
}
"""Numbers that an optimizer keeps per parameter; sgd without momentum keeps none, and muon only one
for a matrix of a hidden layer."""


def optimizer_states(train: TrainSettings) -> int:
    """Return how many numbers the optimizer keeps per parameter, at most."""
    stateless = train.optimizer == "sgd" and not train.momentum
    return 0 if stateless else _OPTIMIZER_STATES[train.optimizer]


@dataclass(frozen=True)
class Training:
    """The training of one base model, from settings, data and graph."""

    train: TrainSettings
    samples: int
    """Number of samples in the training split."""
    validation: int
    test: int
    data_bytes: int | None
    """Size of all splits in packed form."""
    batch_ops: BatchOps
    parameters: int | None
    """Number of trained parameters."""
    kept_bytes: int | None
    """Size of one sample's stored predictions with its true labels."""
    out_of_bag: int | None
    """Maximum number of out-of-bag samples to evaluate; None outside of an ensemble."""
    combine_every: int = 0
    """Every how many evaluations a base model stores its predictions; 0 for never."""
    footprint: Footprint | None = None
    """Footprint of a rank if ranks share the model; None if each rank has all of it."""

    @property
    def ops_forward(self) -> float:
        """Operations of the forward pass for one sample."""
        return self.batch_ops.forward / self.batch_ops.batch

    @property
    def ops_total(self) -> float:
        """Operations of training on one sample."""
        return self.batch_ops.total / self.batch_ops.batch

    @property
    def trained(self) -> int:
        """Number of samples trained on, including those that fill the last batch."""
        steps = training_steps(
            epochs=self.train.epochs, samples=self.samples, batch_size=self.train.batch
        )
        return steps * self.train.batch

    @property
    def evaluated(self) -> int:
        """Number of samples evaluated in all timed evaluations."""
        every = range(self.train.evaluate_every, self.train.epochs + 1, self.train.evaluate_every)
        return len({*every, self.train.epochs}) * self.validation

    @property
    def evaluated_after(self) -> int:
        """Number of samples evaluated after training: test, out-of-bag and predicted samples."""
        if self.out_of_bag is None:
            return self.test
        return self.test + min(self.out_of_bag, out_of_bag_samples(self.samples)) + self.validation

    @property
    def predicted_while_training(self) -> int:
        """Number of predictions that are stored until those of all models are combined."""
        every = self.train.evaluate_every * self.combine_every
        return (self.train.epochs // every if every else 0) * self.validation

    def bytes_of(self, samples: int) -> int | None:
        """Return the size of ``samples`` samples of mean size; None if it is not known."""
        if self.data_bytes is None:
            return None
        return self.data_bytes * samples // (self.samples + self.validation + self.test)

    @property
    def weight_bytes(self) -> int | None:
        """Size of one copy of the trainable parameters."""
        return None if self.parameters is None else self.parameters * self._number_bytes

    @property
    def memory_bytes(self) -> int | None:
        """Memory for a rank's weights, gradients and optimizer state."""
        footprint = self.footprint
        if footprint is None and self.parameters is not None:
            footprint = Footprint(self.parameters)
        return None if footprint is None else footprint.numbers(self.states) * self._number_bytes

    @property
    def _number_bytes(self) -> int:
        return 2 if self.train.precision in ("fp16", *BF16_WEIGHTS) else 4

    @property
    def states(self) -> int:
        """Numbers that the optimizer keeps per parameter."""
        return optimizer_states(self.train)


@dataclass(frozen=True)
class Speed:
    """The expected speed of training a base model, and its source."""

    samples_per_s: float
    evaluated_per_s: float | None
    start_s: float
    """Seconds before the first step."""
    is_lower_bound: bool
    """Whether the time is a lower bound, computed from ceilings and not from a run."""
    source: str


class Estimate(Data):
    """The resources that a plan needs; values that are not known are None."""

    models: int
    ranks: int
    scale: int
    """Slots in use at once: M × P (equation 5), unless models run in waves."""
    waves: int
    claims_weak_scaling: bool
    slots: int
    """Slots of all nodes."""
    nodes: int
    """Nodes in use."""
    nodes_known: int
    repeat: int
    apc: int
    """Operations for one update of every model that trains at the same time (equation 4)."""
    ops_training: int
    ops_evaluation: int
    """Operations of timed evaluations."""
    samples: int
    """Samples trained on by all models, over all epochs."""
    epoch_bytes: int | None
    """Bytes read by all models per epoch."""
    read_bytes: int | None
    """Bytes read by all models in total."""
    staged_node_bytes: int | None
    """Maximum bytes on a node's local storage: the models of an ensemble may need only a part."""
    checkpoint_bytes: int | None
    """Maximum size on disk for all models, without buffers such as those of batch norm."""
    audit_bytes: int | None = None
    """The part of it that stays after the run, for audits."""
    prediction_bytes: int | None
    """Size of the predictions after training."""
    memory_rank_bytes: int | None
    """Memory for a rank's weights, gradients and optimizer state, without activations."""
    memory_rank_holds: str = MODEL_STATE
    """Description of what ``memory_rank_bytes`` includes."""
    interim_bytes: int | None = None
    """Size of the predictions during training of one ensemble, which are deleted once combined."""
    samples_per_s: float | None = None
    """Speed of one model."""
    time_s: float | None = None
    time_is_least: bool = False
    time_source: str | None = None
    """The source of the time, or the reason why it is not known."""
    real_run: str | None = None
    """Why the run that a rehearsal stands for would be refused."""
    remarks: tuple[str, ...] = ()
    """Remarks about the data."""


def estimate(
    planned: Plan,
    training: Training,
    *,
    repeat: int = 1,
    speed: Speed | None = None,
    unknown: str = "",
) -> Estimate:
    """Return the resources that a plan needs to train all its models like ``training``.

    ``unknown`` is the reason why ``speed`` is not known.
    """
    models = planned.models
    trainings = models * repeat
    read = training.bytes_of(training.trained + training.evaluated + training.evaluated_after)
    epoch, weights = training.bytes_of(training.samples), training.weight_bytes
    states = None if weights is None else trainings * weights * (1 + training.states)
    segments = training.train.segments
    stored = 0 if training.out_of_bag is None else training.kept_bytes
    return Estimate(
        models=models,
        ranks=planned.ranks,
        scale=planned.scale,
        waves=planned.waves,
        claims_weak_scaling=planned.claims_weak_scaling,
        nodes=len({name for placement in planned.placements for name, _ in placement.places}),
        slots=sum(node.slots for node in planned.nodes),
        nodes_known=len(planned.nodes),
        repeat=repeat,
        apc=planned.scale // planned.ranks * training.batch_ops.of_training(training.train.batch),
        ops_training=trainings * training.batch_ops.of_training(training.trained),
        ops_evaluation=trainings * training.batch_ops.of_evaluation(training.evaluated),
        samples=trainings * training.trained,
        epoch_bytes=None if epoch is None else models * epoch,
        read_bytes=None if read is None else trainings * read,
        staged_node_bytes=training.data_bytes,
        checkpoint_bytes=None if states is None else (segments + _MAX_CHECKPOINTS) * states,
        audit_bytes=None if states is None else segments * states,
        prediction_bytes=None if stored is None else trainings * training.validation * stored,
        interim_bytes=None
        if stored is None
        else models * training.predicted_while_training * stored,
        memory_rank_bytes=training.memory_bytes,
        memory_rank_holds=training.footprint.description if training.footprint else MODEL_STATE,
        samples_per_s=speed.samples_per_s if speed else None,
        time_s=_time_s(training, speed) * planned.waves * repeat if speed else None,
        time_is_least=speed.is_lower_bound if speed else False,
        time_source=speed.source if speed else unknown or None,
    )


def _time_s(training: Training, speed: Speed) -> float:
    """Return the time to train one model, from process start to the last evaluation."""
    return training_time_s(
        samples=training.trained,
        samples_per_s=speed.samples_per_s,
        start_s=speed.start_s,
        evaluated=training.evaluated,
        evaluated_per_s=speed.evaluated_per_s,
    )


def measured_speed(
    scores: Sequence[TrainingScore], workload: str, training: Training, run: str
) -> Speed | None:
    """Return the speed of a run's slowest job of ``workload``, scaled to the number of ranks.

    Return None if it trained none in this precision.
    """
    known = [
        (score, score.speed, score.work)
        for score in scores
        if (score.workload, score.precision) == (workload, training.train.precision)
        and score.speed
        and score.work
        and score.speed.flops > 0
    ]
    if not known:
        return None
    score, speed, work = min(known, key=lambda item: item[1].flops / item[0].ranks)
    ratio = training.train.ranks / score.ranks
    evaluation = speed.flops_evaluation
    source = (
        f"{run}: {speed.samples_per_s:,.4g} samples/s of a model on {score.ranks} rank"
        + "s" * (score.ranks > 1)
        + (f" of {score.device}" if score.device else "")
    )
    if len(known) > 1:
        source += f", the slowest of {len(known)}"
    if ratio != 1:
        source += f"; scaled to {training.train.ranks} ranks, assuming no waiting"
    if work.batch_ops != training.batch_ops:
        source += "; scaled by operations per sample, since model or batch differ"
    return Speed(
        samples_per_s=ratio * speed.flops / training.ops_total,
        evaluated_per_s=ratio * evaluation / training.ops_forward
        if evaluation and training.ops_forward
        else None,
        start_s=score.phases.get("start-up", 0.0) + score.phases.get("compilation", 0.0),
        is_lower_bound=False,
        source=source,
    )


def bounding_speed(
    counted: Count, machine: Ceilings, training: Training, run: str, *, share: float
) -> Speed | None:
    """Return the speed that a run's ceilings allow; None if they were not measured.

    ``share`` is the share of the machine that a model uses.
    """
    precision = CEILING_PRECISIONS[training.train.precision]
    if machine.memory is None or precision not in machine.precisions(counted.graph):
        return None
    return Speed(
        samples_per_s=share * bound(counted, machine, precision).samples_per_s,
        evaluated_per_s=None,
        start_s=0.0,
        is_lower_bound=True,
        source=f"the {precision} ceilings of {run}, without start-up and evaluations",
    )


def placement_text(placement: Placement) -> str:
    """Return the nodes of a model with their slots; only the first and the last of many."""
    nodes = [f"{name}: {_slot_range(slots)}" for name, slots in placement.places]
    if len(nodes) > _MAX_NAMED_NODES:
        return f"{nodes[0]} … {nodes[-1]} ({len(nodes)} nodes)"
    return "; ".join(nodes)


def _slot_range(slots: Sequence[int]) -> str:
    return f"{slots[0]}" if len(slots) == 1 else f"{slots[0]}–{slots[-1]}"


def _interim(needs: Estimate) -> str:
    """Return the size of the predictions during training, if there are any."""
    if not needs.interim_bytes:
        return ""
    return f", {quantity(needs.interim_bytes, 'B')} more until they are combined"


def _kept(needs: Estimate) -> str:
    """Return the size of the checkpoints that stay after the run, if there are any."""
    if not needs.audit_bytes:
        return ""
    return f" ({quantity(needs.audit_bytes, 'B')} stay for audits: train.segments)"


def estimate_rows(needs: Estimate) -> list[list[str]]:
    """Return the rows of a table, each with a name and a value with its unit."""

    def size(number: int | None) -> str:
        return "not known" if number is None else quantity(number, "B")

    repeats = f", {needs.repeat} times" if needs.repeat > 1 else ""
    time = needs.time_source or ""
    if needs.time_s is not None:
        long = needs.time_s >= _HOURS_FROM_S
        spent = f"{needs.time_s / 3600:,.1f} h" if long else seconds(needs.time_s)
        time = f"{'at best ' * needs.time_is_least}{spent}, by {time}"
    most = "" if needs.staged_node_bytes is None else "at most "
    waves = f" in {needs.waves} waves: no claim of weak scaling" if needs.waves > 1 else ""
    return [
        [
            "Sys_scale",
            f"{needs.scale:,} of {needs.slots:,} slots, {needs.nodes:,} of {needs.nodes_known:,} "
            f"nodes{waves}",
        ],
        ["APC", f"{integer(needs.apc)} operations for one update of each model at once"],
        ["operations", f"{integer(needs.ops_training)} of training{repeats}"],
        ["", f"{integer(needs.ops_evaluation)} of evaluations"],
        ["samples", f"{integer(needs.samples)} trained on"],
        ["read", f"{size(needs.epoch_bytes)} per epoch, {size(needs.read_bytes)} in total"],
        ["staged", f"{most}{size(needs.staged_node_bytes)} on the local storage of a node"],
        [
            "disk",
            f"{size(needs.checkpoint_bytes)} of checkpoints at most{_kept(needs)}, "
            f"{size(needs.prediction_bytes)} of predictions{_interim(needs)}",
        ],
        [
            "memory",
            f"{size(needs.memory_rank_bytes)} per rank for {needs.memory_rank_holds}; activations "
            "and messages are extra",
        ],
        ["time", time],
        *(["note", remark] for remark in needs.remarks),
    ]
