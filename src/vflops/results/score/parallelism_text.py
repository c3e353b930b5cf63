"""How ranks shared a job, as rows of a name and a text for the terminal and the report."""

from __future__ import annotations

from vflops.config.training import CEILING_PRECISIONS
from vflops.record.formats.job_events import StagesRun
from vflops.results.score.parallelism import ExchangeScore, SharedScore
from vflops.results.score.score_file import TrainingScore
from vflops.units import count, percent, quantity

_MAX_STAGES = 8
"""The maximum number of stages whose shares are listed one by one."""
_LAYERS = "linear layers and 1×1 convolutions"
_EIGHT_BITS = {"fp8": "fp8", "mixed-fp8": "fp8", "mixed-int8": "int8"}


def shared_rows(training: TrainingScore) -> list[tuple[str, str]]:
    """Return rows on how the model was shared and on the traffic; none for a single rank."""
    shared = training.shared
    if shared is None:
        return []
    rows = [("ranks", _ranks(shared))]
    if shared.stages is not None:
        rows += [("stages", _stages(shared.stages)), ("bubble", _bubble(shared.stages))]
    if shared.exchange is not None:
        rows += [
            ("traffic", _traffic(shared.exchange)),
            ("exchange", _exchange_method(shared.exchange)),
        ]
    if shared.within is not None:
        names = ("traffic", "exchange")
        if shared.exchange is not None:
            names = ("traffic in copies", "exchange in copies")
        rows += zip(names, (_traffic(shared.within), _exchange_method(shared.within)), strict=True)
    return rows


def precision(training: TrainingScore) -> str:
    """Return the precision of a training job, and which parts used fewer bits."""
    name = training.precision or "—"
    if training.precision not in CEILING_PRECISIONS or training.precision == "fp32":
        return name  # of a command that does not state one
    bits, factor = _EIGHT_BITS.get(name), training.quality.penalty
    eight_bit_part = ""
    if bits is not None:
        layers = count(training.layers_of_8_bits, "linear layer or 1×1 convolution", _LAYERS)
        eight_bit_part = f": products of {layers} in {bits}, all else wider"
    cost = "" if factor is None else f"; its cost is in the quality factor, {factor:.4g}"
    compare = f"vflops scale {training.workload} --precisions fp32,{name}"
    return f"{name}{eight_bit_part}{cost}; to compare with fp32 at these settings: {compare}"


def _ranks(shared: SharedScore) -> str:
    ranks, settings = count(shared.ranks, "rank"), shared.settings
    if settings.mode == "data":
        return f"{ranks}, data parallel: each has the whole model and a share of a batch"
    if settings.mode == "sharded":
        return f"{ranks}, sharded data: each keeps a part of every layer and has a share of a batch"
    split = "some channels" if settings.divides_channels else "some layers"
    how = f"{settings.inner} parallel: each has {split}"
    if settings.mode == "mixed":
        return f"{ranks}, mixed: {shared.copies} copies × {shared.ranks // shared.copies}, {how}"
    return f"{ranks}, {how}"


def _stages(run: StagesRun) -> str:
    total = max(sum(run.operations), 1)
    shares = [percent(operations / total) for operations in run.operations]
    if len(shares) > _MAX_STAGES:
        low, high = min(run.operations) / total, max(run.operations) / total
        shares = [f"{percent(low)} to {percent(high)}"]
    parts = count(run.micro_batches, "micro-batch", "micro-batches")
    stages = f"{len(run.operations)}, with {', '.join(shares)} of the operations"
    return f"{stages}; {parts} by {run.schedule}"


def _bubble(run: StagesRun) -> str:
    theory = f"{percent(run.bubble_theory)} in theory"
    if run.bubble is None:
        return f"{theory}; not measured: {run.reason}"
    return f"{percent(run.bubble)} of the ranks' time in steps, {theory}"


def _traffic(exchange: ExchangeScore) -> str:
    links = f"{quantity(exchange.bytes_near, 'B')} near, {quantity(exchange.bytes_far, 'B')} far"
    sent = f"{quantity(exchange.bytes, 'B')} per step by all ranks ({links})"
    if not exchange.bytes_plain:
        return sent
    plain = quantity(exchange.bytes_plain, "B")
    if (exchange.mode, exchange.precision) == ("all-reduce", "fp32"):
        return sent
    share = percent(exchange.bytes / exchange.bytes_plain)
    return f"{sent}, {share} of the {plain} of an all-reduce in fp32"


def _exchange_method(exchange: ExchangeScore) -> str:
    by = exchange.algorithm or f"algorithm not known: {exchange.reason}"
    rows = f", rows of {exchange.near}" if exchange.mode in ("hierarchical", "torus") else ""
    return f"{exchange.mode} in {exchange.precision}{rows} over {exchange.backend}; {by}"
