"""How ranks shared a training, in words: rows of a name and a text, for terminal and page."""

from __future__ import annotations

from vflops.record.formats.job_events import StagesRun
from vflops.results.score.figure_text import count
from vflops.results.score.parallelism import ExchangeScore, SharedScore
from vflops.results.score.score_file import TrainingScore
from vflops.units import percent, quantity

_MOST_STAGES = 8
"""Whose shares are told one by one."""
_LAYERS = "linear layers and 1×1 convolutions"
_EIGHT_BITS = {"mixed-fp8": "fp8", "mixed-int8": "int8"}


def shared_rows(training: TrainingScore) -> list[tuple[str, str]]:
    """How the model was shared and what was sent; nothing of a training by one rank."""
    found = training.shared
    if found is None:
        return []
    rows = [("ranks", _ranks(found))]
    if found.stages is not None:
        rows += [("stages", _stages(found.stages)), ("bubble", _bubble(found.stages))]
    if found.exchange is not None:
        rows += [("sent in a step", _sent(found.exchange)), ("exchange", _way(found.exchange))]
    if found.within is not None:
        names = ("sent in a step", "exchange")
        if found.exchange is not None:
            names = ("sent in copies", "exchange in copies")
        rows += zip(names, (_sent(found.within), _way(found.within)), strict=True)
    return rows


def precision(training: TrainingScore) -> str:
    """What it was trained in, and which part of it was narrower than the rest."""
    name = training.precision or "—"
    if training.precision in (None, "fp32"):
        return name
    bits, factor = _EIGHT_BITS.get(name), training.quality.penalty
    narrow = ""
    if bits is not None:
        layers = count(training.layers_of_8_bits, "linear layer or 1×1 convolution", _LAYERS)
        narrow = f": products of {layers} in {bits}, weights' gradients and all else wider"
    cost = "" if factor is None else f"; what it costs is in the quality factor, {factor:.4g}"
    against = f"vflops scale {training.workload} --precisions fp32,{name}"
    return f"{name}{narrow}{cost}; against fp32, with the settings of this run: {against}"


def _ranks(found: SharedScore) -> str:
    ranks, told = count(found.ranks, "rank"), found.settings
    if told.mode == "data":
        return f"{ranks}, data parallel: each has the whole model and a share of a batch"
    if told.mode == "sharded":
        return f"{ranks}, sharded data: each keeps a part of every layer, and a share of a batch"
    split = "some channels" if told.divides_channels else "some layers"
    how = f"{told.inner} parallel: each has {split}"
    if told.mode == "mixed":
        return f"{ranks}, mixed: {found.copies} copies × {found.ranks // found.copies}, {how}"
    return f"{ranks}, {how}"


def _stages(found: StagesRun) -> str:
    whole = max(sum(found.operations), 1)
    shares = [percent(each / whole) for each in found.operations]
    if len(shares) > _MOST_STAGES:
        least, most = min(found.operations) / whole, max(found.operations) / whole
        shares = [f"{percent(least)} to {percent(most)}"]
    parts = count(found.micro_batches, "micro-batch", "micro-batches")
    of = f"{len(found.operations)}, with {', '.join(shares)} of the operations"
    return f"{of}; {parts} by {found.schedule}"


def _bubble(found: StagesRun) -> str:
    theory = f"{percent(found.bubble_theory)} in theory"
    if found.bubble is None:
        return f"{theory}; not measured: {found.reason}"
    return f"{percent(found.bubble)} of the ranks' time in steps, {theory}"


def _sent(found: ExchangeScore) -> str:
    links = f"{quantity(found.bytes_near, 'B')} near, {quantity(found.bytes_far, 'B')} far"
    told = f"{quantity(found.bytes, 'B')} by all ranks ({links})"
    if not found.bytes_plain:
        return told
    plain = quantity(found.bytes_plain, "B")
    if (found.mode, found.precision) == ("all-reduce", "fp32"):
        return told
    return f"{told}; all-reduce in fp32: {plain}, so {percent(found.bytes / found.bytes_plain)}"


def _way(found: ExchangeScore) -> str:
    by = found.algorithm or f"algorithm not known: {found.reason}"
    rows = f", rows of {found.near}" if found.mode in ("hierarchical", "torus") else ""
    return f"{found.mode} in {found.precision}{rows} over {found.backend}; {by}"
