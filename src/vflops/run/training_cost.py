"""What a plan of base models needs: operations, bytes, memory and time; plain arithmetic."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vflops.config.training import CEILING_OF, TrainSettings
from vflops.counting.count import Count
from vflops.launch.placement import Placement, Plan
from vflops.metrics import apc, epoch_ops, out_of_bag_samples
from vflops.metrics.training_time import training_steps
from vflops.record.files.document import Data
from vflops.results.roofline.analysis import Ceilings, bound
from vflops.results.score.score_file import TrainingScore
from vflops.train.parallel.footprint import HELD, Footprint
from vflops.units import integer, quantity, seconds

_CHECKPOINTS = 3
"""Of a model on disk at once: the two that are kept, and the one that is being written."""
_MOST_NODES = 4
"""Of a model that are all named."""
_LONG_S = 3 * 3600.0
"""From here on hours are enough."""
_STATES = {"sgd": 1, "adam": 2, "adagrad": 1, "lars": 1, "lamb": 2}
"""Numbers that an optimizer remembers for each parameter; sgd without momentum has none."""


@dataclass(frozen=True)
class Training:
    """The training of one base model, as settings, data and graph say."""

    train: TrainSettings
    samples: int
    """Of the training split."""
    validation: int
    test: int
    data_bytes: int | None
    """Of all splits, packed."""
    ops_forward: int
    """Of one sample."""
    ops_total: int
    parameters: int | None
    """That are trained."""
    kept_bytes: int | None
    """Of one sample's predictions with what is true of it."""
    out_of_bag: int | None
    """The most samples outside of its bag that judge it; None: it is no member of an ensemble."""
    held: Footprint | None = None
    """Of a rank, where ranks share the model; None: each has all of it."""

    @property
    def trained(self) -> int:
        """Samples that it is trained on, whatever its bag holds; the last batch is a whole one."""
        steps = training_steps(
            epochs=self.train.epochs, samples=self.samples, batch_size=self.train.batch
        )
        return steps * self.train.batch

    @property
    def evaluated(self) -> int:
        """Samples of all evaluations while the clock runs."""
        every = range(self.train.evaluate_every, self.train.epochs + 1, self.train.evaluate_every)
        return len({*every, self.train.epochs}) * self.validation

    @property
    def judged(self) -> int:
        """Samples that it sees when the clock has stopped: test, out of bag, predictions."""
        if self.out_of_bag is None:
            return self.test
        return self.test + min(self.out_of_bag, out_of_bag_samples(self.samples)) + self.validation

    def bytes_of(self, samples: int) -> int | None:
        """What so many samples take; they are alike, or this is a mean."""
        if self.data_bytes is None:
            return None
        return self.data_bytes * samples // (self.samples + self.validation + self.test)

    @property
    def weight_bytes(self) -> int | None:
        """Of the trainable parameters, one copy."""
        return None if self.parameters is None else self.parameters * self._number_bytes

    @property
    def memory_bytes(self) -> int | None:
        """Of a rank's weights, gradients and optimizer."""
        held = self.held or (None if self.parameters is None else Footprint(self.parameters))
        return None if held is None else held.numbers(self.states) * self._number_bytes

    @property
    def _number_bytes(self) -> int:
        return 2 if self.train.precision == "fp16" else 4

    @property
    def states(self) -> int:
        """Copies of the parameters' size that the optimizer keeps."""
        forgets = self.train.optimizer == "sgd" and not self.train.momentum
        return 0 if forgets else _STATES[self.train.optimizer]


@dataclass(frozen=True)
class Speed:
    """How fast a base model would train, and how that is known."""

    samples_per_s: float
    evaluated_per_s: float | None
    start_s: float
    """Before the first step."""
    least_time: bool
    """Whether the time is the least that ceilings allow, not what a run took."""
    source: str


class Estimate(Data):
    """What a plan needs; None where it is not known."""

    models: int
    ranks: int
    scale: int
    """Slots in use at once: M × P (equation 5) unless models wait for others."""
    waves: int
    claims_weak_scaling: bool
    slots: int
    """Of all nodes."""
    nodes: int
    """Nodes in use."""
    nodes_known: int
    repeat: int
    apc: int
    """Operations of all models for one update of each."""
    ops_training: int
    ops_evaluation: int
    """Of the evaluations that the clock sees."""
    samples: int
    """Trained on by all models, over all epochs."""
    epoch_bytes: int | None
    """Read by all models for the samples of an epoch."""
    read_bytes: int | None
    """Read by all models in all."""
    staged_node_bytes: int | None
    """Of a node's own storage, whatever the number of models there."""
    checkpoint_bytes: int | None
    """On disk at most, of all models; without buffers such as those of batch norm."""
    prediction_bytes: int | None
    memory_rank_bytes: int | None
    """Weights, gradients and optimizer of a rank; activations and messages come on top."""
    memory_rank_holds: str = HELD
    """What of them a rank has."""
    samples_per_s: float | None = None
    """Of one model."""
    time_s: float | None = None
    time_is_least: bool = False
    time_source: str | None = None
    """What the time rests on, or why it is not known."""


def estimate(
    planned: Plan, one: Training, *, repeat: int = 1, speed: Speed | None = None, unknown: str = ""
) -> Estimate:
    """What ``planned`` needs when every model is trained as ``one``; ``unknown``: why no time."""
    models = planned.models
    times = models * repeat
    read = one.bytes_of(one.trained + one.evaluated + one.judged)
    epoch, weights = one.bytes_of(one.samples), one.weight_bytes
    kept = 0 if one.out_of_bag is None else one.kept_bytes
    return Estimate(
        models=models,
        ranks=planned.ranks,
        scale=planned.scale,
        waves=planned.waves,
        claims_weak_scaling=planned.claims_weak_scaling,
        nodes=len({name for each in planned.placements for name, _ in each.places}),
        slots=sum(node.slots for node in planned.nodes),
        nodes_known=len(planned.nodes),
        repeat=repeat,
        apc=apc(ops_per_sample=one.ops_total, batch_size=one.train.batch, models=models),
        ops_training=epoch_ops(ops_per_sample=one.ops_total, samples=one.trained, models=times),
        ops_evaluation=epoch_ops(
            ops_per_sample=one.ops_forward, samples=one.evaluated, models=times
        ),
        samples=times * one.trained,
        epoch_bytes=None if epoch is None else models * epoch,
        read_bytes=None if read is None else times * read,
        staged_node_bytes=one.data_bytes,
        checkpoint_bytes=None
        if weights is None
        else times * _CHECKPOINTS * weights * (1 + one.states),
        prediction_bytes=None if kept is None else times * one.validation * kept,
        memory_rank_bytes=one.memory_bytes,
        memory_rank_holds=one.held.words if one.held else HELD,
        samples_per_s=speed.samples_per_s if speed else None,
        time_s=_time_s(one, speed) * planned.waves * repeat if speed else None,
        time_is_least=speed.least_time if speed else False,
        time_source=speed.source if speed else unknown or None,
    )


def _time_s(one: Training, speed: Speed) -> float:
    """Of one model, from the start of its processes to the end of its last evaluation."""
    checked_s = one.evaluated / speed.evaluated_per_s if speed.evaluated_per_s else 0.0
    return speed.start_s + one.trained / speed.samples_per_s + checked_s


def measured_speed(
    scores: Sequence[TrainingScore], workload: str, one: Training, run: str
) -> Speed | None:
    """The speed of the slowest training of ``workload`` in a run, brought to these ranks."""
    known = [
        (score, score.speed, score.work)
        for score in scores
        if score.workload == workload and score.speed and score.work and score.speed.flops > 0
    ]
    if not known:
        return None
    score, speed, work = min(known, key=lambda each: each[1].flops / each[0].ranks)
    more = one.train.ranks / score.ranks
    checked = speed.flops_evaluation
    source = (
        f"{run}: {speed.samples_per_s:,.4g} samples/s of a model on {score.ranks} rank"
        + "s" * (score.ranks > 1)
        + (f" of {score.device}" if score.device else "")
    )
    if len(known) > 1:
        source += f", the slowest of {len(known)}"
    if more != 1:
        source += f"; {one.train.ranks} ranks as if none waited for another"
    if work.ops_total != one.ops_total:
        source += "; another model or batch, so by operations of a sample"
    return Speed(
        samples_per_s=more * speed.flops / one.ops_total,
        evaluated_per_s=more * checked / one.ops_forward if checked and one.ops_forward else None,
        start_s=score.phases.get("start-up", 0.0) + score.phases.get("compilation", 0.0),
        least_time=False,
        source=source,
    )


def bounding_speed(
    counted: Count, machine: Ceilings, one: Training, run: str, *, share: float
) -> Speed | None:
    """The most that the ceilings of a run allow; ``share``: of what was measured, a model's."""
    precision = CEILING_OF[one.train.precision]
    if machine.memory is None or precision not in machine.precisions():
        return None
    return Speed(
        samples_per_s=share * bound(counted, machine, precision).samples_per_s,
        evaluated_per_s=None,
        start_s=0.0,
        least_time=True,
        source=f"the {precision} ceilings of {run}, without start-up and evaluations",
    )


def places(placement: Placement) -> str:
    """The nodes of a model with their slots; of many the first and the last."""
    each = [f"{name}: {_span(slots)}" for name, slots in placement.places]
    if len(each) > _MOST_NODES:
        return f"{each[0]} … {each[-1]} ({len(each)} nodes)"
    return "; ".join(each)


def _span(slots: Sequence[int]) -> str:
    return f"{slots[0]}" if len(slots) == 1 else f"{slots[0]}–{slots[-1]}"


def words(found: Estimate) -> list[list[str]]:
    """Names and figures with their units, as people read them."""

    def size(number: int | None) -> str:
        return "not known" if number is None else quantity(number, "B")

    several = f", {found.repeat} times" if found.repeat > 1 else ""
    time = found.time_source or ""
    if found.time_s is not None:
        long = found.time_s >= _LONG_S
        spent = f"{found.time_s / 3600:,.1f} h" if long else seconds(found.time_s)
        time = f"{'at best ' * found.time_is_least}{spent}, by {time}"
    waves = f" in {found.waves} waves: no claim of weak scaling" if found.waves > 1 else ""
    return [
        [
            "Sys_scale",
            f"{found.scale:,} of {found.slots:,} slots, {found.nodes:,} of {found.nodes_known:,} "
            f"nodes{waves}",
        ],
        ["APC", f"{integer(found.apc)} operations of all models for one update of each"],
        ["operations", f"{integer(found.ops_training)} of training{several}"],
        ["", f"{integer(found.ops_evaluation)} of evaluations"],
        ["samples", f"{integer(found.samples)} trained on"],
        ["read", f"{size(found.epoch_bytes)} an epoch, {size(found.read_bytes)} in all"],
        ["staged", f"{size(found.staged_node_bytes)} on the own storage of a node"],
        [
            "disk",
            f"{size(found.checkpoint_bytes)} of checkpoints at most, "
            f"{size(found.prediction_bytes)} of predictions",
        ],
        [
            "memory",
            f"{size(found.memory_rank_bytes)} a rank for {found.memory_rank_holds}; activations "
            "and messages come on top",
        ],
        ["time", time],
    ]
