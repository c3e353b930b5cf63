"""The traffic that ranks must have sent, computed from the settings and the counted graph.

Gradients are averaged in the buckets of torch's DDP, whose number is only known if a model fits
into one: then the bytes are exact, else they are bounded by the padding of one bucket per tensor.
For sharded weights it is not known which are blocks, which are gathered twice, so the bytes lie
between those of no blocks and of blocks only. The traffic of stages and divided channels depends on
where a model was cut, which is not recorded: it only has to be equal for all parts of a batch.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, get_args

from vflops.config.training import TrainSettings
from vflops.metrics.traffic import (
    ELEMENT_BYTES,
    GLOO_ALGORITHMS,
    POWERSGD_RANK,
    POWERSGD_START,
    bytes_sent,
    near_ranks,
    powersgd_elements,
    sharded_sent,
)
from vflops.record.formats.graph import Graph
from vflops.record.formats.job_events import Exchanged, ModelSharing

BACKENDS = {"cpu": "gloo", "mps": "gloo", "cuda": "nccl", "xpu": "xccl"}
"""Torch's default communication library per device; unknown for other devices."""
_FIRST_BUCKET_BYTES = 1 << 20
"""The size of DDP's first bucket; a smaller model has only one bucket."""


class Span(NamedTuple):
    """A range of allowed values."""

    least: int
    most: int

    def __str__(self) -> str:
        return str(self.least) if self.least == self.most else f"{self.least} to {self.most}"

    def times(self, factor: int) -> Span:
        """Return the range multiplied by ``factor``."""
        return Span(factor * self.least, factor * self.most)


class Fact(NamedTuple):
    """A value in an event, and the expected value."""

    what: str
    value: object
    wanted: object
    source: str = "expected"

    @property
    def fault(self) -> str | None:
        """The difference as text; None if the value is as expected."""
        if isinstance(self.wanted, Span) and isinstance(self.value, int):
            fits = self.wanted.least <= self.value <= self.wanted.most
        else:
            fits = self.value == self.wanted
        return None if fits else f"{self.what} {self.value}, {self.wanted} {self.source}"


@dataclass(frozen=True)
class Team:
    """The ranks of an attempt that finished training."""

    train: TrainSettings
    device: str
    steps: int
    """Steps of this attempt."""
    local: int
    """Ranks per node."""
    parameters: int
    graph: Graph | None
    """None if it was not recorded."""

    @property
    def copies(self) -> int:
        """Copies of the model whose gradients are averaged; 1: no averaging."""
        return 1 if self.train.parallel.mode == "sharded" else self.train.shares

    @property
    def sharing(self) -> int:
        """Ranks that share a copy."""
        return self.train.ranks // self.copies

    @property
    def narrow(self) -> bool:
        """Whether weights and gradients may take 2 bytes."""
        return self.train.precision == "fp16"


def exchange_facts(team: Team, sent: Exchanged) -> Iterator[Fact]:
    """Yield what is expected of an exchange event, except for its bytes."""
    parallel, settings = team.train.parallel, team.train.communication
    if sent.mode in get_args(ModelSharing):
        yield Fact("a model shared by", sent.mode, parallel.inner, "configured")
        yield Fact("ranks that share one:", sent.ranks, team.sharing, "configured")
        yield Fact("elements", sent.elements, None)
        near = min(team.local, team.sharing)
        if team.train.precision in ("fp32", "tf32"):
            short = [name for name in sent.precision.split("+") if name in ("fp16", "bf16")]
            yield Fact("sent in", "+".join(short) or "fp32", "fp32")
    else:
        yield Fact("gradients averaged by", sent.mode, settings.mode, "configured")
        yield Fact("gradients sent in", sent.precision, settings.precision, "configured")
        yield Fact("copies of the model:", sent.ranks, team.copies, "configured")
        node = max(team.local // team.sharing, 1)
        near = min(node, team.copies)
        if settings.mode != "all-reduce":
            near = near_ranks(team.copies, node, settings.near)
    yield Fact("near", sent.near, near)
    yield Fact("steps", sent.steps, team.steps)
    yield Fact("backend", sent.backend, BACKENDS.get(team.device, sent.backend))
    if sent.backend == "gloo":
        algorithms = "; ".join(
            f"{call}: {GLOO_ALGORITHMS[call]}" for call in sorted(_calls(team, sent))
        )
        yield Fact("algorithm", sent.algorithm, algorithms)
    elif sent.algorithm is None:
        yield Fact("a reason for the unknown algorithm:", bool(sent.reason), True)
    else:
        yield Fact("algorithm", sent.algorithm.partition("=")[0], "NCCL_ALGO")


def _calls(team: Team, sent: Exchanged) -> set[str]:
    """Return the collective calls that the first rank made."""
    if sent.mode == "sharded":
        return {"all-gather", "reduce-scatter"}
    if sent.mode in get_args(ModelSharing):
        return {"all-reduce"} if team.train.parallel.divides_channels else {"send"}
    flat = {"all-gather", "all-to-all"} if sent.precision == "int8" else {"all-reduce"}
    beside = {"hierarchical": {"broadcast", "gather"}, "torus": {"all-gather", "all-to-all"}}
    return flat | beside.get(sent.mode, set())


def shared_bytes(team: Team, sent: Exchanged) -> Iterator[Fact]:
    """Yield what is expected of the bytes that ranks sent for a copy that they share."""
    total = sent.bytes_near + sent.bytes_far
    if sent.near in (1, sent.ranks):
        value, link = (sent.bytes_near, "near") if sent.near == 1 else (sent.bytes_far, "far")
        yield Fact(f"bytes_{link}", value, 0)
    if sent.mode == "sharded":
        yield Fact("bytes", total, _sharded(team, sent.backend).times(team.steps))
    parts = team.steps * team.copies
    parts *= 1 if sent.mode == "sharded" else team.train.accumulate
    if not total or total % parts:
        yield Fact("bytes", total, f"a multiple of {parts}")


def _sharded(team: Team, backend: str) -> Span:
    """Return the bytes of one step; each part of a batch gathers the weights again."""
    ranks, again = team.sharing, team.train.accumulate - 1
    padded = [
        Span(min(sizes), max(sizes))
        for shapes in _shapes(team.graph)
        if (sizes := [-(-shape[0] // ranks) * ranks * math.prod(shape[1:]) for shape in shapes])
    ]
    known = len(padded) == len(team.graph.parameters) if team.graph else False
    least = sum(size.least for size in padded) if known else team.parameters
    most = sum(size.most for size in padded) if known else team.parameters * ranks
    least, most = (2 if team.narrow else 4) * least, 4 * most
    return Span(
        sharded_sent(0, least, ranks, backend=backend) + again * (ranks - 1) * least,
        sharded_sent(most, 0, ranks, backend=backend) + again * (ranks - 1) * 2 * most,
    )


def averaged_bytes(team: Team, sent: Sequence[Exchanged]) -> Iterator[Fact]:
    """Yield what is expected of the bytes that copies sent to average gradients.

    ``sent`` holds one exchange per stage of a rank.
    """
    averages = team.steps * team.copies
    elements = None
    if all(exchange.elements is not None for exchange in sent):
        elements = sum(exchange.elements or 0 for exchange in sent)
    # Each of the ranks that share a copy averages the layers that are not divided.
    most = team.sharing if team.train.parallel.divides_channels else 1
    yield Fact(
        "elements", elements, Span(averages * team.parameters, averages * team.parameters * most)
    )
    if elements is None or elements % averages:
        yield Fact("elements", elements, f"a multiple of {averages}")
        return
    numbers = Span(elements // averages, elements // averages)
    full, compressed = team.steps, 0
    if sent[0].precision == "powersgd":
        full = min(team.steps, POWERSGD_START)
        compressed = team.steps - full
    wide = _exchange(team, sent[0], numbers)
    narrow = _exchange(team, sent[0], _narrowed(team, numbers)) if compressed else wide
    for link, name in enumerate(("bytes_near", "bytes_far")):
        least = full * wide[link].least + compressed * narrow[link].least
        most = full * wide[link].most + compressed * narrow[link].most
        yield Fact(name, sum(getattr(exchange, name) for exchange in sent), Span(least, most))


def _exchange(team: Team, sent: Exchanged, numbers: Span) -> tuple[Span, Span]:
    """Return the near and far bytes of one average of ``numbers`` elements per copy."""
    library = (
        sent.precision == "powersgd" or team.train.communication.is_plain
    )  # torch does not pad
    wire = "fp32" if library else sent.precision
    short = "fp16" if library and team.narrow else wire
    buckets, other = _buckets(team), sent.ranks - 1
    from_, to = numbers.least - (buckets * other if library else 0), numbers.most
    least = bytes_sent(sent.mode, short, sent.ranks, sent.near, max(from_, 0))
    most = bytes_sent(sent.mode, wire, sent.ranks, sent.near, to + (buckets - 1) * other)
    scales = bytes_sent(sent.mode, wire, sent.ranks, sent.near, 0)
    return (
        Span(least.near, most.near + (buckets - 1) * scales.near),
        Span(least.far, most.far + (buckets - 1) * scales.far),
    )


def _buckets(team: Team) -> int:
    """Return the largest number of buckets of a copy; a bucket holds one type."""
    small = ELEMENT_BYTES["fp32"] * team.parameters < _FIRST_BUCKET_BYTES
    tensors = len(team.graph.parameters) if team.graph else team.parameters
    stages = team.train.parallel.stages(team.train.ranks) if team.train.parallel.cuts_layers else 1
    parts = max(stages, team.sharing)  # each part averages its own gradients
    return parts * ((2 if team.narrow else 1) if small else tensors)


def _narrowed(team: Team, numbers: Span) -> Span:
    """Return how many numbers PowerSGD sends instead; not known for divided channels."""
    shapes = _shapes(team.graph)
    if (
        team.graph is None
        or team.train.parallel.divides_channels
        or len(shapes) < len(team.graph.parameters)
    ):
        return Span(0, numbers.most)
    sizes = [[powersgd_elements([shape], POWERSGD_RANK) for shape in options] for options in shapes]
    return Span(sum(map(min, sizes)), sum(map(max, sizes)))


def _shapes(graph: Graph | None) -> list[set[tuple[int, ...]]]:
    """Return the possible shapes of each parameter: a product may see it transposed."""
    if graph is None:
        return []
    shapes: dict[str, set[tuple[int, ...]]] = {}
    for value in graph.values:
        name = value.parameter
        if name and value.shape and value.elements == graph.parameters.get(name):
            transposed = value.shape[::-1] if len(value.shape) == 2 else value.shape
            shapes.setdefault(name, set()).update((value.shape, transposed))
    return list(shapes.values())
