"""Predicts the training of M models with P ranks each, from the step time of one accelerator."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from vflops.config.parallel import ParallelSettings
from vflops.errors import UsageError
from vflops.metrics import capped_factor, system_scale
from vflops.metrics.training_time import training_steps, training_time_s
from vflops.studies.predict import step_time as step_times
from vflops.studies.predict.exchange_time import Group, Link, missing_input
from vflops.studies.predict.inputs import MAX_ACCELERATORS, Inputs
from vflops.studies.predict.step_time import GradientExchange, StepTime
from vflops.train.parallel.balance import too_many_stages

MICRO_BATCHES = 4
"""The default number of micro-batches per rank, which keeps the bubble small (GPipe, 2019)."""


@dataclass(frozen=True)
class Prediction:
    """A prediction for M models with P ranks each; figures that need an unknown input are None."""

    models: int
    ranks: int
    step: StepTime
    efficiency: float
    """The step time of a single accelerator divided by the predicted step time."""
    flops: float | None
    vflops: float | None
    time_s: float | None
    """The time until every model has trained for all its epochs."""
    energy_j: float | None
    vflops_per_w: float | None
    sent_bytes: float = 0.0
    """Bytes that the ranks of one model send each other per step."""
    reason: str | None = None
    """Why time, energy and VFLOPS are None if the batch is larger than the data."""

    @property
    def accelerators(self) -> int:
        """The number of accelerators: Sys_scale, equation 5 of HPC AI500 V3.0."""
        return self.models * self.ranks


def predict(inputs: Inputs, models: int, ranks: int) -> Prediction:
    """Return the prediction for ``models`` jobs with ``ranks`` ranks each.

    Raise UsageError if an input is missing, or the numbers do not fit the machine or the settings.
    The jobs of an ensemble share only the file system: if they read more than it delivers, every
    step waits for it.
    """
    accelerators = _require_valid_size(inputs, models, ranks)
    compute_s = _known(inputs, "step.time_s")
    step = step_time(inputs, ranks)
    reading_s = _reading_s(inputs, accelerators)
    if reading_s > step.total_s:
        step = replace(step, reading_s=reading_s - step.total_s)
    batch, training = inputs.step.batch, inputs.training
    reason = _batch_exceeds_data(inputs, ranks)
    flops = vflops = time_s = energy_j = per_watt = None
    if inputs.step.ops_per_sample and batch:
        flops = accelerators * batch * inputs.step.ops_per_sample / step.total_s
    if flops is not None and training.quality_factor is not None and not reason:
        vflops = flops * capped_factor(training.quality_factor)
    if training.samples and training.epochs and batch and not reason:
        steps = training_steps(
            epochs=training.epochs, samples=training.samples, batch_size=batch * ranks
        )
        time_s = training_time_s(
            samples=steps * batch * ranks, samples_per_s=batch * ranks / step.total_s
        )
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
        sent_bytes=step.sent_bytes,
        reason=reason,
    )


def _batch_exceeds_data(inputs: Inputs, ranks: int) -> str | None:
    """Return a message if the batch is larger than an epoch, so that the quality is not known."""
    samples, batch = inputs.training.samples, (inputs.step.batch or 0) * ranks
    if samples is None or batch <= samples:
        return None
    return f"a batch of {batch:,} is larger than the data of {samples:,} samples"


def step_time(inputs: Inputs, ranks: int) -> StepTime:
    """Return the step time of one model on ``ranks`` accelerators.

    Raise UsageError for settings that a run would reject. With one rank, all modes are the same:
    nothing is shared or sent.
    """
    compute_s = _known(inputs, "step.time_s")
    if ranks == 1:
        return StepTime(compute_s)
    group = group_of(inputs, ranks)
    parallel = _run_settings(inputs, ranks)
    near = inputs.communication.near
    if parallel.mode == "data":
        return step_times.data(compute_s, replace(group, near=near), _gradient_exchange(inputs))
    if parallel.mode == "sharded":  # gather and scatter are rings in every library
        exchanging = replace(_gradient_exchange(inputs), mode="ring")
        step = step_times.sharded(compute_s, group, exchanging, _block_share(inputs))
        return step_times.with_gathering(step, group, inputs.model.gathered_bytes or 0.0)
    if parallel.mesh is None:
        return _shared(inputs, parallel, group)
    sharing = parallel.mesh[1]
    inner = _shared(inputs, parallel, group_of(inputs, sharing))
    between = step_times.copy_group(group, sharing, near)
    exchanging = _gradient_exchange(inputs, sharing)
    return step_times.mixed(inner, compute_s, between, exchanging, sharing)


def _run_settings(inputs: Inputs, ranks: int) -> ParallelSettings:
    """Return the settings of a run with ``ranks`` ranks; raise the errors that it would raise."""
    parallel, node = inputs.parallel, int(_known(inputs, "node.accelerators"))
    if parallel.mode == "mixed" and parallel.mesh is None:
        _require_whole_copies(parallel.sharing, ranks, node)
    settings = parallel.run_settings(ranks, node)
    copies = settings.shares(ranks)
    sharing = settings.mesh[1] if settings.mesh else ranks // copies
    parts = math.gcd(inputs.step.batch or 0, MICRO_BATCHES)  # the fewest micro-batches per rank
    try:
        settings.check(ranks, _micro_batches(inputs, sharing), ranks * parts)
        inputs.communication.check(settings, copies)
    except ValueError as error:
        message, _, hint = str(error).rpartition(": ")
        raise UsageError(message or hint, hint=hint if message else None) from error
    if settings.mesh and node % sharing and sharing % node:
        raise UsageError(
            f"parallel.sharing = {sharing} neither divides node.accelerators = {node} nor is a"
            " multiple of it, so copies would span nodes unevenly",
            hint=f"use parallel.sharing = {node}",
        )
    return settings


def _require_whole_copies(sharing: int | None, ranks: int, node: int) -> None:
    if sharing is None and node == 1:
        raise missing_input(
            "parallel.sharing", "mode mixed needs the number of ranks that share a copy"
        )
    per_copy = sharing or node
    if ranks % per_copy:
        raise UsageError(
            f"{ranks:,} ranks are not a multiple of parallel.sharing = {per_copy}",
            hint=f"use {_nearest_multiples(ranks, per_copy)} ranks",
        )


def _micro_batches(inputs: Inputs, sharing: int) -> int:
    """Return the number of micro-batches of a pipeline with ``sharing`` ranks."""
    return inputs.train.accumulate or sharing * math.gcd(inputs.step.batch or 0, MICRO_BATCHES)


def group_of(inputs: Inputs, ranks: int) -> Group:
    """Return the group of a model's ranks, which fill whole nodes or fit on one."""
    node = int(_known(inputs, "node.accelerators"))
    if ranks > node and ranks % node:
        raise UsageError(
            f"{ranks:,} ranks do not fill nodes of node.accelerators = {node}",
            hint=f"use {_nearest_multiples(ranks, node)} ranks",
        )
    within = _link(inputs, "node") if min(ranks, node) > 1 else None
    return Group(ranks, node, within, _link(inputs, "link") if ranks > node else None)


def _shared(inputs: Inputs, parallel: ParallelSettings, group: Group) -> StepTime:
    """Return the step time of a copy that the ranks of ``group`` share."""
    compute_s = _known(inputs, "step.time_s")
    if parallel.divides_channels:
        return _tensor(inputs, group)
    activations, tied = _known(inputs, "model.activation_bytes"), inputs.model.tied_bytes or 0.0
    chunks, sharing = inputs.parallel.chunks, group.ranks
    _require_layers(inputs, sharing * chunks, chunks)
    if parallel.inner == "model":
        step = step_times.model(compute_s, group, activations)
        return step_times.with_tied_weights(step, group, tied)
    micro_batches, samples = _micro_batches(inputs, sharing), (inputs.step.batch or 0) * sharing
    if samples % micro_batches:
        raise UsageError(
            f"train.accumulate = {micro_batches} does not divide the batch of {sharing} ranks,"
            f" {samples:,} samples",
            hint=f"use train.accumulate = {sharing}",
        )
    step = step_times.pipeline(compute_s, group, activations, micro_batches, chunks)
    return step_times.with_tied_weights(step, group, tied)


def _tensor(inputs: Inputs, group: Group) -> StepTime:
    """Return the step time of a copy whose layers the ranks of ``group`` divide."""
    model, sums = inputs.model, inputs.model.sums
    if sums == 0:
        raise UsageError(
            "nothing in the model can be divided between ranks: it declares no channel_pairs",
            hint="use --set parallel.split=layers",
        )
    if model.divisor is not None and model.divisor % group.ranks:
        fitting = [str(n) for n in range(2, model.divisor + 1) if model.divisor % n == 0]
        raise UsageError(
            f"{group.ranks:,} ranks cannot share model.divisor = {model.divisor} heads or channels"
            " evenly",
            hint=f"use {', '.join(fitting)} ranks per copy of the model"
            if fitting
            else "use --set parallel.split=layers",
        )
    size = model.sum_bytes or model.layer_bytes or _known(inputs, "model.activation_bytes")
    if sums is None:
        sums = 2 * int(_known(inputs, "model.layers"))
    step = step_times.tensor(_known(inputs, "step.time_s"), group, size, sums)
    return step_times.with_gathering(step, group, model.gathered_bytes or 0.0)


def _require_layers(inputs: Inputs, stages: int, chunks: int) -> None:
    """Raise, as a run does, if the model has fewer layers than ``stages``."""
    limit = inputs.model.layers
    if limit is not None and stages > limit:
        ranks = limit // chunks
        is_mixed = inputs.parallel.mode == "mixed"
        hint = f"parallel.sharing={ranks}" if is_mixed else f"--ranks {ranks}"
        raise too_many_stages("the model", stages, limit, f"use {hint} or fewer")


def _block_share(inputs: Inputs) -> float:
    """Return the share of the weights that are in blocks."""
    size, blocks = _known(inputs, "model.gradient_bytes"), inputs.model.block_bytes
    return 1.0 if blocks is None else min(1.0, blocks / size)


def _gradient_exchange(inputs: Inputs, sharing: int = 1) -> GradientExchange:
    communication = inputs.communication
    size = _known(inputs, "model.gradient_bytes") * inputs.share / sharing
    coding_s = inputs.coding_s / sharing
    return GradientExchange(
        communication.exchange_mode,
        size,
        communication.overlap,
        communication.buckets,
        communication.last_bucket,
        coding_s,
    )


def _link(inputs: Inputs, name: str) -> Link:
    return Link(_known(inputs, f"{name}.bandwidth"), _known(inputs, f"{name}.latency_s"))


def _reading_s(inputs: Inputs, accelerators: int) -> float:
    """Return how long the storage takes to deliver a step's data; 0 if that is not known."""
    storage = inputs.storage
    if storage.bandwidth is None or storage.bytes_per_sample is None:
        return 0.0
    batch = _known(inputs, "step.batch")
    return accelerators * batch * storage.bytes_per_sample / storage.bandwidth


_WHY = {
    "step.time_s": "every prediction needs it",
    "step.batch": "the bytes that a step reads depend on it",
    "node.accelerators": "it determines which link a message takes",
    "node.bandwidth": "ranks on a node communicate over these links",
    "node.latency_s": "ranks on a node communicate over these links",
    "link.bandwidth": "nodes communicate over these links",
    "link.latency_s": "nodes communicate over these links",
    "model.gradient_bytes": "ranks exchange the gradients",
    "model.activation_bytes": "the parts of a model send each other activations",
    "model.layers": "every layer needs an exchange in each direction",
}
"""Why a prediction needs an input, for error messages: "X is not known, but …"."""


def _known(inputs: Inputs, name: str) -> float:
    """Return an input by its full name; raise UnknownInput if it is None."""
    section, _, key = name.partition(".")
    value: float | None = getattr(getattr(inputs, section), key)
    if value is None:
        raise missing_input(name, _WHY[name])
    return value


def _require_valid_size(inputs: Inputs, models: int, ranks: int) -> int:
    if models < 1 or ranks < 1:
        raise UsageError(
            f"{models} models of {ranks} ranks: expected whole numbers of at least 1",
            hint="e.g. --models 1 --ranks 8",
        )
    accelerators = system_scale(models=models, parallel_degree=ranks)
    if accelerators > MAX_ACCELERATORS:
        raise UsageError(
            f"{models:,} × {ranks:,} are {accelerators:,} accelerators; the limit is"
            f" {MAX_ACCELERATORS:,}",
            hint=f"with {min(ranks, MAX_ACCELERATORS):,} ranks each, use at most"
            f" {max(1, MAX_ACCELERATORS // ranks):,} models",
        )
    return accelerators


def _nearest_multiples(number: int, unit: int) -> str:
    """Return the multiples of ``unit`` below and above ``number``, in words."""
    below = number // unit * unit
    return f"{below:,} or {below + unit:,}" if below else f"{unit:,}"
