"""Predictions for M models of P ranks, from one accelerator and its links."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from vflops.config.parallel import ParallelSettings
from vflops.errors import UsageError
from vflops.metrics import system_scale
from vflops.metrics.training_time import training_steps
from vflops.studies.predict import step_time as step_times
from vflops.studies.predict.exchange_time import Group, Link, needs
from vflops.studies.predict.inputs import MOST, Inputs
from vflops.studies.predict.step_time import Exchanging, StepTime

MICRO_BATCHES = 4
"""Micro-batches per rank by default: the bubble is then small (Huang et al. 2019, GPipe)."""


@dataclass(frozen=True)
class Prediction:
    """A prediction for M models of P ranks; None for figures that need an unknown input."""

    models: int
    ranks: int
    step: StepTime
    efficiency: float
    """Relative to a single accelerator: T over the time of the step."""
    flops: float | None
    vflops: float | None
    time_s: float | None
    """Until every model has trained its epochs."""
    energy_j: float | None
    vflops_per_w: float | None
    reason: str | None = None
    """Why there is no time, energy and VFLOPS: the batch is larger than the data."""

    @property
    def accelerators(self) -> int:
        """Sys_scale, equation 5."""
        return self.models * self.ranks


def predict(inputs: Inputs, models: int, ranks: int) -> Prediction:
    """Return the prediction for ``models`` jobs of ``ranks`` accelerators; raise if impossible.

    Jobs of an ensemble share only the file system: if they read more than it delivers, every step
    waits for it.
    """
    accelerators = _require_valid_size(inputs, models, ranks)
    compute_s = _known(inputs, "step.time_s")
    step = step_time(inputs, ranks)
    reading_s = _reading_s(inputs, accelerators)
    if reading_s > step.total_s:
        step = replace(step, reading_s=reading_s - step.total_s)
    batch, training = inputs.step.batch, inputs.training
    reason = _too_large(inputs, ranks)
    flops = vflops = time_s = energy_j = per_watt = None
    if inputs.step.ops_per_sample and batch:
        flops = accelerators * batch * inputs.step.ops_per_sample / step.total_s
    if flops is not None and training.quality_factor is not None and not reason:
        vflops = flops * training.quality_factor
    if training.samples and training.epochs and batch and not reason:
        steps = training_steps(
            epochs=training.epochs, samples=training.samples, batch_size=batch * ranks
        )
        time_s = steps * step.total_s
    if inputs.node.power_w is not None:
        watts = accelerators * inputs.node.power_w
        energy_j = None if time_s is None else watts * time_s
        per_watt = None if vflops is None else vflops / watts
    return Prediction(
        models=models,
        ranks=ranks,
        step=step,
        efficiency=compute_s / step.total_s,
        flops=flops,
        vflops=vflops,
        time_s=time_s,
        energy_j=energy_j,
        vflops_per_w=per_watt,
        reason=reason,
    )


def _too_large(inputs: Inputs, ranks: int) -> str | None:
    """Return why the quality is not known: the batch is larger than an epoch."""
    samples, batch = inputs.training.samples, (inputs.step.batch or 0) * ranks
    if samples is None or batch <= samples:
        return None
    return f"a batch of {batch:,} is larger than the data of {samples:,} samples"


def step_time(inputs: Inputs, ranks: int) -> StepTime:
    """Return the step of one model on ``ranks`` accelerators; raise where a run would.

    One rank is a single accelerator in any mode: it shares and sends nothing.
    """
    compute_s = _known(inputs, "step.time_s")
    if ranks == 1:
        return StepTime(compute_s)
    group = group_of(inputs, ranks)
    parallel = _run_settings(inputs, ranks)
    near = inputs.communication.near
    if parallel.mode == "data":
        return step_times.data(compute_s, replace(group, near=near), _exchanging(inputs))
    if parallel.mode == "sharded":  # gather and scatter are rings in every library
        return step_times.sharded(compute_s, group, replace(_exchanging(inputs), mode="ring"))
    if parallel.mesh is None:
        return _shared(inputs, parallel, group)
    sharing = parallel.mesh[1]
    inner = _shared(inputs, parallel, group_of(inputs, sharing))
    between = step_times.copies(group, sharing, near)
    return step_times.mixed(inner, compute_s, between, _exchanging(inputs, sharing))


def _run_settings(inputs: Inputs, ranks: int) -> ParallelSettings:
    """Return the settings of a run of so many ranks; raise its errors."""
    given, node = inputs.parallel, int(_known(inputs, "node.accelerators"))
    if given.mode == "mixed" and given.mesh is None:
        _require_whole_copies(given.sharing, ranks, node)
    settings = given.at(ranks, node)
    copies = settings.shares(ranks)
    sharing = settings.mesh[1] if settings.mesh else ranks // copies
    parts = math.gcd(inputs.step.batch or 0, MICRO_BATCHES)  # micro-batches per rank, at least
    try:
        settings.check(ranks, _micro_batches(inputs, sharing), ranks * parts)
        inputs.communication.check(settings, copies)
    except ValueError as error:
        message, _, hint = str(error).rpartition(": ")
        raise UsageError(message or hint, hint=hint if message else None) from error
    if settings.mesh and node % sharing and sharing % node:
        raise UsageError(
            f"parallel.sharing = {sharing} neither divides node.accelerators = {node} nor is a"
            " multiple of it: copies would span nodes unevenly",
            hint=f"parallel.sharing = {node} would fit",
        )
    return settings


def _require_whole_copies(sharing: int | None, ranks: int, node: int) -> None:
    if sharing is None and node == 1:
        raise needs("parallel.sharing", "mode mixed needs the number of ranks that share a copy")
    per_copy = sharing or node
    if ranks % per_copy:
        raise UsageError(
            f"{ranks:,} ranks are not a multiple of parallel.sharing = {per_copy}",
            hint=f"{_around(ranks, per_copy)} would fit",
        )


def _micro_batches(inputs: Inputs, sharing: int) -> int:
    """Return the micro-batches of a pipeline of ``sharing`` ranks."""
    return inputs.train.accumulate or sharing * math.gcd(inputs.step.batch or 0, MICRO_BATCHES)


def group_of(inputs: Inputs, ranks: int) -> Group:
    """Return ``ranks`` of one model as a group that fills nodes, or a part of one node."""
    node = int(_known(inputs, "node.accelerators"))
    if ranks > node and ranks % node:
        raise UsageError(
            f"{ranks:,} ranks do not fill nodes of node.accelerators = {node}",
            hint=f"{_around(ranks, node)} would",
        )
    within = _link(inputs, "node") if min(ranks, node) > 1 else None
    return Group(ranks, node, within, _link(inputs, "link") if ranks > node else None)


def _shared(inputs: Inputs, parallel: ParallelSettings, group: Group) -> StepTime:
    """Return the step of a copy that the ranks of ``group`` share."""
    compute_s = _known(inputs, "step.time_s")
    layers, activations = inputs.model.layers, _known(inputs, "model.activation_bytes")
    if parallel.divides_channels:
        size = inputs.model.layer_bytes or activations
        return step_times.tensor(compute_s, group, size, int(_known(inputs, "model.layers")))
    chunks, sharing = inputs.parallel.chunks, group.ranks
    if layers is not None and sharing * chunks > layers:
        stages_each = f" of {chunks} stages each" if chunks > 1 else ""
        raise UsageError(
            f"{sharing:,} ranks{stages_each} are more than model.layers = {layers}",
            hint=f"at most {layers // chunks:,} would fit",
        )
    if parallel.inner == "model":
        return step_times.model(compute_s, group, activations)
    micro_batches, samples = _micro_batches(inputs, sharing), (inputs.step.batch or 0) * sharing
    if samples % micro_batches:
        raise UsageError(
            f"train.accumulate = {micro_batches} does not divide the batch of {sharing} ranks,"
            f" {samples:,} samples",
            hint=f"train.accumulate = {sharing} would",
        )
    return step_times.pipeline(compute_s, group, activations, micro_batches, chunks)


def _exchanging(inputs: Inputs, sharing: int = 1) -> Exchanging:
    communication = inputs.communication
    size = _known(inputs, "model.gradient_bytes") * inputs.share / sharing
    coding_s = inputs.coding_s / sharing
    return Exchanging(
        communication.way,
        size,
        communication.overlap,
        communication.buckets,
        communication.last_bucket,
        coding_s,
    )


def _link(inputs: Inputs, name: str) -> Link:
    return Link(_known(inputs, f"{name}.bandwidth"), _known(inputs, f"{name}.latency_s"))


def _reading_s(inputs: Inputs, accelerators: int) -> float:
    """Return the least time of a step by what all accelerators read; 0 if that is not known."""
    storage = inputs.storage
    if storage.bandwidth is None or storage.bytes_per_sample is None:
        return 0.0
    batch = _known(inputs, "step.batch")
    return accelerators * batch * storage.bytes_per_sample / storage.bandwidth


_WHY = {
    "step.time_s": "every prediction needs it",
    "step.batch": "what a step reads depends on it",
    "node.accelerators": "which link a message takes depends on it",
    "node.bandwidth": "ranks of a node exchange over it",
    "node.latency_s": "ranks of a node exchange over that link",
    "link.bandwidth": "nodes exchange over it",
    "link.latency_s": "nodes exchange over that link",
    "model.gradient_bytes": "it is what ranks exchange",
    "model.activation_bytes": "it is what parts of a model send each other",
    "model.layers": "each layer exchanges once per direction",
}


def _known(inputs: Inputs, name: str) -> float:
    section, _, key = name.partition(".")
    value: float | None = getattr(getattr(inputs, section), key)
    if value is None:
        raise needs(name, _WHY[name])
    return value


def _require_valid_size(inputs: Inputs, models: int, ranks: int) -> int:
    if models < 1 or ranks < 1:
        raise UsageError(
            f"{models} models of {ranks} ranks: expected whole numbers of at least 1",
            hint="e.g. --models 1 --ranks 8",
        )
    accelerators = system_scale(models=models, parallel_degree=ranks)
    if accelerators > MOST:
        raise UsageError(
            f"{models:,} × {ranks:,} are {accelerators:,} accelerators; the limit is {MOST:,}",
            hint=f"with {min(ranks, MOST):,} ranks each, M = {max(1, MOST // ranks):,} at most",
        )
    return accelerators


def _around(number: int, unit: int) -> str:
    below = number // unit * unit
    return f"{below:,} or {below + unit:,}" if below else f"{unit:,}"
