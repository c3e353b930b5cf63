"""What ranks must have sent each other, worked out again from settings and the counted graph.

Gradients are averaged in buckets of torch's DDP, whose number is only known where a model fits into
one: then the bytes are exact, else within the padding of as many buckets as there are tensors. Of
weights that are sharded it is not known which are blocks, gathered twice, so the bytes lie between
those of none and of all. What stages and divided channels send depends on where a model was cut,
which is not recorded: it is the same for every part of a batch, and no more is asked of it.
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
from vflops.record.formats.job import Exchanged, ModelSharing

BACKENDS = {"cpu": "gloo", "mps": "gloo", "cuda": "nccl", "xpu": "xccl"}
"""The library that torch takes for a device; of others it is not known here."""
_FIRST_BUCKET_BYTES = 1 << 20
"""DDP fills its first bucket up to this; a model with less has one."""


class Span(NamedTuple):
    """What a figure may be."""

    least: int
    most: int

    def __str__(self) -> str:
        return str(self.least) if self.least == self.most else f"{self.least} to {self.most}"

    def times(self, factor: int) -> Span:
        """Of so many."""
        return Span(factor * self.least, factor * self.most)


class Fact(NamedTuple):
    """A figure or a word of an event, and what it has to be."""

    what: str
    found: object
    wanted: object
    source: str = "expected"

    @property
    def fault(self) -> str | None:
        """In words; None where it is so."""
        if isinstance(self.wanted, Span) and isinstance(self.found, int):
            fits = self.wanted.least <= self.found <= self.wanted.most
        else:
            fits = self.found == self.wanted
        return None if fits else f"{self.what} {self.found}, {self.wanted} {self.source}"


@dataclass(frozen=True)
class Team:
    """The ranks of an attempt that trained to the end."""

    train: TrainSettings
    device: str
    steps: int
    """Of this attempt."""
    local: int
    """Ranks on a node."""
    parameters: int
    graph: Graph | None
    """None where it is not recorded."""

    @property
    def copies(self) -> int:
        """Of the model, whose gradients are averaged; 1: none are."""
        return 1 if self.train.parallel.mode == "sharded" else self.train.shares

    @property
    def sharing(self) -> int:
        """Ranks that have a copy between them."""
        return self.train.ranks // self.copies

    @property
    def narrow(self) -> bool:
        """Whether weights and gradients may have 2 bytes."""
        return self.train.precision == "fp16"


def said(team: Team, sent: Exchanged) -> Iterator[Fact]:
    """What one event says of how it was sent, whatever the bytes."""
    parallel, asked = team.train.parallel, team.train.communication
    if sent.mode in get_args(ModelSharing):
        yield Fact("a model shared by", sent.mode, parallel.inner, "was told")
        yield Fact("ranks that share one:", sent.ranks, team.sharing, "was told")
        yield Fact("elements", sent.elements, None)
        near = min(team.local, team.sharing)
        if team.train.precision in ("fp32", "tf32"):
            short = [each for each in sent.precision.split("+") if each in ("fp16", "bf16")]
            yield Fact("sent in", "+".join(short) or "fp32", "fp32")
    else:
        yield Fact("gradients averaged by", sent.mode, asked.mode, "was told")
        yield Fact("gradients sent in", sent.precision, asked.precision, "was told")
        yield Fact("copies of the model:", sent.ranks, team.copies, "was told")
        node = max(team.local // team.sharing, 1)
        near = min(node, team.copies)
        if asked.mode != "all-reduce":
            near = near_ranks(team.copies, node, asked.near)
    yield Fact("near", sent.near, near)
    yield Fact("steps", sent.steps, team.steps)
    yield Fact("backend", sent.backend, BACKENDS.get(team.device, sent.backend))
    if sent.backend == "gloo":
        how = "; ".join(f"{call}: {GLOO_ALGORITHMS[call]}" for call in sorted(_calls(team, sent)))
        yield Fact("algorithm", sent.algorithm, how)
    elif sent.algorithm is None:
        yield Fact("a reason why the algorithm is not known:", bool(sent.reason), True)
    else:
        yield Fact("algorithm", sent.algorithm.partition("=")[0], "NCCL_ALGO")


def _calls(team: Team, sent: Exchanged) -> set[str]:
    """What the first rank called."""
    if sent.mode == "sharded":
        return {"all-gather", "reduce-scatter"}
    if sent.mode in get_args(ModelSharing):
        return {"all-reduce"} if team.train.parallel.divides_channels else {"send"}
    flat = {"all-gather", "all-to-all"} if sent.precision == "int8" else {"all-reduce"}
    beside = {"hierarchical": {"broadcast", "gather"}, "torus": {"all-gather", "all-to-all"}}
    return flat | beside.get(sent.mode, set())


def shared_bytes(team: Team, sent: Exchanged) -> Iterator[Fact]:
    """What ranks sent for a copy that they share."""
    total = sent.bytes_near + sent.bytes_far
    if sent.near in (1, sent.ranks):
        one, none = (sent.bytes_near, "near") if sent.near == 1 else (sent.bytes_far, "far")
        yield Fact(f"bytes_{none}", one, 0)
    if sent.mode == "sharded":
        yield Fact("bytes", total, _sharded(team, sent.backend).times(team.steps))
    parts = team.steps * team.copies
    parts *= 1 if sent.mode == "sharded" else team.train.accumulate
    if not total or total % parts:
        yield Fact("bytes", total, f"a multiple of {parts}")


def _sharded(team: Team, backend: str) -> Span:
    """Of one step; each part of a batch gathers the weights anew."""
    ranks, again = team.sharing, team.train.accumulate - 1
    padded = [
        Span(min(sizes), max(sizes))
        for shapes in _shapes(team.graph)
        if (sizes := [-(-shape[0] // ranks) * ranks * math.prod(shape[1:]) for shape in shapes])
    ]
    known = len(padded) == len(team.graph.parameters) if team.graph else False
    least = sum(each.least for each in padded) if known else team.parameters
    most = sum(each.most for each in padded) if known else team.parameters * ranks
    least, most = (2 if team.narrow else 4) * least, 4 * most
    return Span(
        sharded_sent(0, least, ranks, backend=backend) + again * (ranks - 1) * least,
        sharded_sent(most, 0, ranks, backend=backend) + again * (ranks - 1) * 2 * most,
    )


def averaged_bytes(team: Team, sent: Sequence[Exchanged]) -> Iterator[Fact]:
    """What copies sent to average gradients: all events of theirs, one for a stage of a rank."""
    turns = team.steps * team.copies
    elements = None
    if all(each.elements is not None for each in sent):
        elements = sum(each.elements or 0 for each in sent)
    # A layer that is not divided is averaged by each of the ranks that share a copy.
    most = team.sharing if team.train.parallel.divides_channels else 1
    yield Fact("elements", elements, Span(turns * team.parameters, turns * team.parameters * most))
    if elements is None or elements % turns:
        yield Fact("elements", elements, f"a multiple of {turns}")
        return
    numbers = Span(elements // turns, elements // turns)
    full, few = team.steps, 0
    if sent[0].precision == "powersgd":
        full = min(team.steps, POWERSGD_START)
        few = team.steps - full
    wide = _exchange(team, sent[0], numbers)
    thin = _exchange(team, sent[0], _narrowed(team, numbers)) if few else wide
    for place, name in enumerate(("bytes_near", "bytes_far")):
        least = full * wide[place].least + few * thin[place].least
        most = full * wide[place].most + few * thin[place].most
        yield Fact(name, sum(getattr(each, name) for each in sent), Span(least, most))


def _exchange(team: Team, sent: Exchanged, numbers: Span) -> tuple[Span, Span]:
    """Bytes near and far of one average of so many numbers of each copy."""
    library = sent.precision == "powersgd" or team.train.communication.is_plain  # it does not pad
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
    """The most that the gradients of a copy can be in; types are not mixed in one."""
    small = ELEMENT_BYTES["fp32"] * team.parameters < _FIRST_BUCKET_BYTES
    tensors = len(team.graph.parameters) if team.graph else team.parameters
    stages = team.train.parallel.stages(team.train.ranks) if team.train.parallel.cuts_layers else 1
    parts = max(stages, team.sharing)  # each averages its own gradients
    return parts * ((2 if team.narrow else 1) if small else tensors)


def _narrowed(team: Team, numbers: Span) -> Span:
    """Numbers that PowerSGD sends in their place; of divided channels it is not known."""
    shapes = _shapes(team.graph)
    if (
        team.graph is None
        or team.train.parallel.divides_channels
        or len(shapes) < len(team.graph.parameters)
    ):
        return Span(0, numbers.most)
    sizes = [[powersgd_elements([shape], POWERSGD_RANK) for shape in each] for each in shapes]
    return Span(sum(min(each) for each in sizes), sum(max(each) for each in sizes))


def _shapes(graph: Graph | None) -> list[set[tuple[int, ...]]]:
    """The shapes that each parameter may have: a product can see it turned round."""
    if graph is None:
        return []
    found: dict[str, set[tuple[int, ...]]] = {}
    for value in graph.values:
        name = value.parameter
        if name and value.shape and value.elements == graph.parameters.get(name):
            turned = value.shape[::-1] if len(value.shape) == 2 else value.shape
            found.setdefault(name, set()).update((value.shape, turned))
    return list(found.values())
