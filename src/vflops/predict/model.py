"""The prediction: M models of P ranks, from what is known of one accelerator and its links."""

from __future__ import annotations

from dataclasses import dataclass

from vflops.errors import UsageError
from vflops.metrics import system_scale
from vflops.predict import steps
from vflops.predict.exchange import Group, Link, needs
from vflops.predict.inputs import MOST, Inputs
from vflops.predict.steps import Exchanging, StepTime


@dataclass(frozen=True)
class Prediction:
    """M models of P ranks. What rests on a figure that is not known is None."""

    models: int
    ranks: int
    step: StepTime
    efficiency: float
    """Of an accelerator, against one by itself: T over the step's time."""
    flops: float | None
    vflops: float | None
    time_s: float | None
    """Until every model has trained its epochs."""
    energy_j: float | None
    vflops_per_w: float | None

    @property
    def accelerators(self) -> int:
        """Sys_scale, equation 5."""
        return self.models * self.ranks


def predict(inputs: Inputs, models: int, ranks: int) -> Prediction:
    """``models`` jobs of ``ranks`` accelerators each; refused where that cannot be.

    Jobs of an ensemble share nothing but the file system: where all of them read more than it has,
    every step waits for it.
    """
    accelerators = _refused(inputs, models, ranks)
    compute_s = _known(inputs, "step.time_s")
    step = step_time(inputs, ranks)
    reading_s = _reading_s(inputs, accelerators)
    if reading_s > step.total_s:
        step = StepTime(step.compute_s, step.bubble_s, step.exchange_s, reading_s - step.total_s)
    batch, training = inputs.step.batch, inputs.training
    flops = vflops = time_s = energy_j = per_watt = None
    if inputs.step.ops_per_sample and batch:
        flops = accelerators * batch * inputs.step.ops_per_sample / step.total_s
    if flops is not None and training.quality_factor is not None:
        vflops = flops * training.quality_factor
    if training.samples and training.epochs and batch:
        time_s = training.epochs * training.samples / (batch * ranks) * step.total_s
    if inputs.node.power_w is not None:
        watts = accelerators * inputs.node.power_w
        energy_j = None if time_s is None else watts * time_s
        per_watt = None if vflops is None else vflops / watts
    efficiency = compute_s / step.total_s
    return Prediction(models, ranks, step, efficiency, flops, vflops, time_s, energy_j, per_watt)


def step_time(inputs: Inputs, ranks: int) -> StepTime:
    """A step of one model on ``ranks`` accelerators."""
    compute_s, mode = _known(inputs, "step.time_s"), inputs.parallel.mode
    if ranks == 1:
        return StepTime(compute_s)
    group = group_of(inputs, ranks)
    if mode == "data":
        return steps.data(compute_s, group, _exchanging(inputs))
    if mode == "sharded":
        if inputs.exchange.mode not in ("ring", "torus"):
            raise UsageError(
                f"parallel.mode = sharded exchanges by halves of an all-reduce, and"
                f" {inputs.exchange.mode} has none",
                cure="--set exchange.mode=ring, or torus",
            )
        return steps.sharded(compute_s, group, _exchanging(inputs))
    if mode != "mixed":
        return _split(inputs, mode, group)
    stages = inputs.parallel.stages
    if stages is None:
        raise needs("parallel.stages", "a mixed mode splits every replica in so many")
    if ranks % stages:
        raise UsageError(
            f"{ranks:,} ranks are no whole number of replicas of parallel.stages = {stages}",
            cure=f"{_around(ranks, stages)} would fit",
        )
    node = group.node
    if node % stages and stages % node:
        raise UsageError(
            f"parallel.stages = {stages} neither divides node.accelerators = {node} nor is a"
            " multiple of it: replicas would lie across nodes",
            cure=f"parallel.stages = {node} would fit",
        )
    inner = _split(inputs, inputs.parallel.split, group_of(inputs, stages))
    if ranks == stages:
        return inner
    return steps.mixed(inner, compute_s, steps.replicas(group, stages), _exchanging(inputs, stages))


def group_of(inputs: Inputs, ranks: int) -> Group:
    """``ranks`` of one model, on nodes that they fill, or on a part of one."""
    node = int(_known(inputs, "node.accelerators"))
    if ranks > node and ranks % node:
        raise UsageError(
            f"{ranks:,} ranks do not fill nodes of node.accelerators = {node}",
            cure=f"{_around(ranks, node)} would",
        )
    within = _link(inputs, "node") if min(ranks, node) > 1 else None
    return Group(ranks, node, within, _link(inputs, "link") if ranks > node else None)


def _split(inputs: Inputs, mode: steps.Splitting | steps.ParallelMode, group: Group) -> StepTime:
    compute_s = _known(inputs, "step.time_s")
    if group.ranks == 1:
        return StepTime(compute_s)
    layers, activations = inputs.model.layers, _known(inputs, "model.activation_bytes")
    if mode == "tensor":
        return steps.tensor(compute_s, group, activations, int(_known(inputs, "model.layers")))
    if layers is not None and group.ranks * inputs.parallel.chunks > layers:
        each = f" of {inputs.parallel.chunks} chunks" if inputs.parallel.chunks > 1 else ""
        raise UsageError(
            f"{group.ranks:,} stages{each} are more than model.layers = {layers}",
            cure=f"at most {layers // inputs.parallel.chunks:,} would fit",
        )
    if mode == "model":
        return steps.model(compute_s, group, activations)
    micro_batches = int(_known(inputs, "parallel.micro_batches"))
    samples = (inputs.step.batch or 0) * group.ranks
    if samples % micro_batches:
        raise UsageError(
            f"parallel.micro_batches = {micro_batches} does not divide the batch of"
            f" {group.ranks} stages, {samples:,} samples",
            cure=f"parallel.micro_batches = {group.ranks} would",
        )
    return steps.pipeline(compute_s, group, activations, micro_batches, inputs.parallel.chunks)


def _exchanging(inputs: Inputs, stages: int = 1) -> Exchanging:
    own = inputs.exchange
    size = _known(inputs, "model.gradient_bytes") * inputs.share / stages
    return Exchanging(own.mode, size, own.overlap, own.buckets)


def _link(inputs: Inputs, name: str) -> Link:
    return Link(_known(inputs, f"{name}.bandwidth"), _known(inputs, f"{name}.latency_s"))


def _reading_s(inputs: Inputs, accelerators: int) -> float:
    """The least time of a step by what all accelerators read for it; 0 where that is not known."""
    storage = inputs.storage
    if storage.bandwidth is None or storage.bytes_per_sample is None:
        return 0.0
    batch = _known(inputs, "step.batch")
    return accelerators * batch * storage.bytes_per_sample / storage.bandwidth


_WHY = {
    "step.time_s": "every prediction begins with it",
    "step.batch": "what is read for a step follows from it",
    "node.accelerators": "which link a message takes depends on it",
    "node.bandwidth": "ranks of a node exchange over it",
    "node.latency_s": "ranks of a node exchange over that link",
    "link.bandwidth": "nodes exchange over it",
    "link.latency_s": "nodes exchange over that link",
    "model.gradient_bytes": "that is what is exchanged",
    "model.activation_bytes": "that is what parts of a model send each other",
    "model.layers": "each of them exchanges once in a direction",
    "parallel.micro_batches": "the bubble follows from it",
}


def _known(inputs: Inputs, name: str) -> float:
    section, _, key = name.partition(".")
    value: float | None = getattr(getattr(inputs, section), key)
    if value is None:
        raise needs(name, _WHY[name])
    return value


def _refused(inputs: Inputs, models: int, ranks: int) -> int:
    if models < 1 or ranks < 1:
        raise UsageError(
            f"{models} models of {ranks} ranks: expected whole numbers from 1 up",
            cure="e.g. --models 1 --ranks 8",
        )
    found = system_scale(models=models, parallel_degree=ranks)
    if found > MOST:
        raise UsageError(
            f"{models:,} × {ranks:,} are {found:,} accelerators: the model was made for {MOST:,}",
            cure=f"with {min(ranks, MOST):,} ranks each, M = {max(1, MOST // ranks):,} at most",
        )
    return found


def _around(number: int, unit: int) -> str:
    below = number // unit * unit
    return f"{below:,} or {below + unit:,}" if below else f"{unit:,}"
