"""The traffic that ranks must have sent, computed from the settings and the counted graph.

DDP averages gradients in buckets. The number of buckets is known only if the model fits into one;
then the expected bytes are exact. Otherwise they are bounded by the padding of one bucket per
tensor. Sharded blocks are gathered twice, but the log does not say which weights belong to blocks,
so the bytes lie between those of a model without blocks and of a model with only blocks. The
traffic of stages and divided channels depends on where the model was cut, which is not recorded: it
only has to be the same for all parts of a batch, except for what is sent once per step: the
gradients of tied weights that several stages have, and the matrices that Muon gathers. Near links
connect ranks of one node, far links ranks of different nodes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, get_args

from vflops.config.parallel import NCCL_ALGORITHM, nccl_algorithm
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
"""The size of DDP's first bucket. A smaller model has only one bucket."""


class Bounds(NamedTuple):
    """The smallest and the largest allowed value."""

    low: int
    high: int

    def __str__(self) -> str:
        return str(self.low) if self.low == self.high else f"{self.low} to {self.high}"

    def scaled(self, factor: int) -> Bounds:
        """Return both bounds multiplied by ``factor``."""
        return Bounds(factor * self.low, factor * self.high)


class Fact(NamedTuple):
    """A value in an event, and its expected value or bounds."""

    what: str
    value: object
    expected: object
    source: str = "expected"

    @property
    def fault(self) -> str | None:
        """The difference as text; None if the value is as expected."""
        if isinstance(self.expected, Bounds) and isinstance(self.value, int):
            fits = self.expected.low <= self.value <= self.expected.high
        else:
            fits = self.value == self.expected
        return None if fits else f"{self.what} {self.value}, {self.expected} {self.source}"


@dataclass(frozen=True)
class Team:
    """The ranks of an attempt that finished training, and what they trained."""

    train: TrainSettings
    device: str
    steps: int
    """Steps of this attempt."""
    ranks_per_node: int
    parameters: int
    graph: Graph | None
    """The counted graph; None if it was not recorded."""

    @property
    def copies(self) -> int:
        """The number of model copies whose gradients are averaged; 1 means no averaging."""
        return 1 if self.train.parallel.mode == "sharded" else self.train.shares

    @property
    def ranks_per_copy(self) -> int:
        """The number of ranks that share a copy of the model."""
        return self.train.ranks // self.copies

    @property
    def tied(self) -> dict[str, int]:
        """How many layers use each tied weight, by its name; stages may have copies of them."""
        if self.graph is None or not self.train.parallel.cuts_layers:
            return {}
        scopes: dict[str, set[str]] = {}
        for node in self.graph.nodes:
            for value in self.graph.inputs_of(node):
                if value.parameter:
                    scopes.setdefault(value.parameter, set()).add(node.scope)
        return {name: len(users) for name, users in scopes.items() if len(users) > 1}

    @property
    def copied_elements(self) -> int:
        """The largest number of elements that stages have besides those of the model."""
        assert self.graph is not None or not self.tied
        sizes = self.graph.parameters if self.graph else {}
        return sum((users - 1) * sizes[name] for name, users in self.tied.items())

    @property
    def gathers_matrices(self) -> bool:
        """Whether the optimizer gathers divided matrices once per step."""
        parallel = self.train.parallel
        is_divided = parallel.mode == "sharded" or parallel.divides_channels
        return is_divided and self.train.optimizer == "muon"

    @property
    def uses_fp16(self) -> bool:
        """Whether weights and gradients may take 2 bytes."""
        return self.train.precision == "fp16"


def exchange_facts(team: Team, sent: Exchanged) -> Iterator[Fact]:
    """Yield the facts of an exchange event with their expected values, except for its bytes."""
    parallel, settings = team.train.parallel, team.train.communication
    if sent.mode in get_args(ModelSharing):
        yield Fact("a model shared by", sent.mode, parallel.inner, "configured")
        yield Fact("ranks that share one:", sent.ranks, team.ranks_per_copy, "configured")
        yield Fact("elements", sent.elements, None)
        near = min(team.ranks_per_node, team.ranks_per_copy)
        if team.train.precision in ("fp32", "tf32"):
            short = [name for name in sent.precision.split("+") if name in ("fp16", "bf16")]
            yield Fact("sent in", "+".join(short) or "fp32", "fp32")
    else:
        yield Fact("gradients averaged by", sent.mode, settings.mode, "configured")
        yield Fact("gradients sent in", sent.precision, settings.precision, "configured")
        yield Fact("copies of the model:", sent.ranks, team.copies, "configured")
        node = max(team.ranks_per_node // team.ranks_per_copy, 1)
        near = min(node, team.copies)
        if settings.mode != "all-reduce":
            near = near_ranks(team.copies, node, settings.near)
    yield Fact("near", sent.near, near)
    yield Fact("steps", sent.steps, team.steps)
    framework = team.train.framework
    library = BACKENDS.get(team.device, sent.backend) if framework == "pytorch" else framework
    yield Fact("backend", sent.backend, library)
    if sent.backend == "gloo":
        algorithms = "; ".join(
            f"{call}: {GLOO_ALGORITHMS[call]}" for call in sorted(_calls(team, sent))
        )
        yield Fact("algorithm", sent.algorithm, algorithms)
    elif settings.algorithm != "auto" and sent.mode not in get_args(ModelSharing):
        fixed = f"{NCCL_ALGORITHM}={nccl_algorithm(settings.algorithm)}"
        yield Fact("algorithm", sent.algorithm, fixed, "configured")
    elif sent.algorithm is None:
        yield Fact("a reason for the unknown algorithm:", bool(sent.reason), True)
    else:
        yield Fact("algorithm", sent.algorithm.partition("=")[0], NCCL_ALGORITHM)


def _calls(team: Team, sent: Exchanged) -> set[str]:
    """Return the communication calls that the first rank is expected to make."""
    if sent.mode == "sharded":
        return {"all-gather", "reduce-scatter"}
    if sent.mode in get_args(ModelSharing):
        if team.train.parallel.divides_channels:
            return {"all-reduce", "all-gather"} if team.gathers_matrices else {"all-reduce"}
        # The stages with a tied weight may be on one rank.
        sums_tied = bool(team.tied) and "all-reduce" in (sent.algorithm or "")
        return {"send", "all-reduce"} if sums_tied else {"send"}
    base_calls = {"all-gather", "all-to-all"} if sent.precision == "int8" else {"all-reduce"}
    added_calls = {"hierarchical": {"broadcast", "gather"}, "torus": {"all-gather", "all-to-all"}}
    return base_calls | added_calls.get(sent.mode, set())


def shared_bytes(team: Team, sent: Exchanged) -> Iterator[Fact]:
    """Yield the bytes that ranks sent for a copy that they share, with their expected values."""
    total = sent.bytes_near + sent.bytes_far
    if sent.near in (1, sent.ranks):
        value, link = (sent.bytes_near, "near") if sent.near == 1 else (sent.bytes_far, "far")
        yield Fact(f"bytes_{link}", value, 0)
    if sent.mode == "sharded":
        yield Fact("bytes", total, _sharded_step_bytes(team, sent.backend).scaled(team.steps))
    parts = team.steps * team.copies
    once_per_step = {0, *(2 * size * team.copied_elements for size in (2, 4))}
    others = {total - parts * size for size in once_per_step}
    if sent.mode != "sharded" and not team.gathers_matrices:
        parts *= team.train.accumulate
    if not any(other > 0 and other % parts == 0 for other in others):
        yield Fact("bytes", total, f"a multiple of {parts}")


def _sharded_step_bytes(team: Team, backend: str) -> Bounds:
    """Return the bytes of one step. Each part of a batch gathers the weights again."""
    ranks, regathers = team.ranks_per_copy, team.train.accumulate - 1
    padded = [
        Bounds(min(sizes), max(sizes))
        for shapes in _shapes(team.graph)
        if (sizes := [-(-shape[0] // ranks) * ranks * math.prod(shape[1:]) for shape in shapes])
    ]
    known = len(padded) == len(team.graph.parameters) if team.graph else False
    low = sum(size.low for size in padded) if known else team.parameters
    high = sum(size.high for size in padded) if known else team.parameters * ranks
    low, high = (2 if team.uses_fp16 else 4) * low, 4 * high
    gathered = (ranks - 1) * high if team.gathers_matrices else 0
    return Bounds(
        sharded_sent(0, low, ranks, backend=backend) + regathers * (ranks - 1) * low,
        sharded_sent(high, 0, ranks, backend=backend)
        + regathers * (ranks - 1) * 2 * high
        + gathered,
    )


def averaged_bytes(team: Team, sent: Sequence[Exchanged]) -> Iterator[Fact]:
    """Yield the bytes that copies sent to average gradients, with their expected values.

    ``sent`` holds one exchange per stage of a rank.
    """
    averages = team.steps * team.copies
    elements = None
    if all(exchange.elements is not None for exchange in sent):
        elements = sum(exchange.elements or 0 for exchange in sent)
    # Each of the ranks that share a copy averages the layers that are not divided.
    repeats = team.ranks_per_copy if team.train.parallel.divides_channels else 1
    yield Fact(
        "elements",
        elements,
        Bounds(
            averages * team.parameters,
            averages * (team.parameters * repeats + team.copied_elements),
        ),
    )
    if elements is None or elements % averages:
        yield Fact("elements", elements, f"a multiple of {averages}")
        return
    numbers = Bounds(elements // averages, elements // averages)
    full, compressed = team.steps, 0
    if sent[0].precision == "powersgd":
        full = min(team.steps, POWERSGD_START)
        compressed = team.steps - full
    full_bytes = _averaging_bytes(team, sent[0], numbers)
    compressed_bytes = full_bytes
    if compressed:
        compressed_bytes = _averaging_bytes(team, sent[0], _powersgd_numbers(team, numbers))
    for link, name in enumerate(("bytes_near", "bytes_far")):
        low = full * full_bytes[link].low + compressed * compressed_bytes[link].low
        high = full * full_bytes[link].high + compressed * compressed_bytes[link].high
        yield Fact(name, sum(getattr(exchange, name) for exchange in sent), Bounds(low, high))


def _averaging_bytes(team: Team, sent: Exchanged, numbers: Bounds) -> tuple[Bounds, Bounds]:
    """Return the bounds of near and far bytes for averaging ``numbers`` elements per copy."""
    by_torch = (
        sent.precision == "powersgd" or team.train.communication.is_plain
    )  # torch does not pad
    precision = "fp32" if by_torch else sent.precision
    low_precision = "fp16" if by_torch and team.uses_fp16 else precision
    buckets, padding = _max_buckets(team), sent.ranks - 1
    fewest = max(numbers.low - (buckets * padding if by_torch else 0), 0)
    most = numbers.high + (buckets - 1) * padding
    low = bytes_sent(sent.mode, low_precision, sent.ranks, sent.near, fewest)
    high = bytes_sent(sent.mode, precision, sent.ranks, sent.near, most)
    scales = bytes_sent(sent.mode, precision, sent.ranks, sent.near, 0)
    return (
        Bounds(low.near, high.near + (buckets - 1) * scales.near),
        Bounds(low.far, high.far + (buckets - 1) * scales.far),
    )


def _max_buckets(team: Team) -> int:
    """Return the largest possible number of buckets per copy. A bucket holds one data type."""
    small = ELEMENT_BYTES["fp32"] * team.parameters < _FIRST_BUCKET_BYTES
    tensors = len(team.graph.parameters) if team.graph else team.parameters
    stages = team.train.parallel.stages(team.train.ranks) if team.train.parallel.cuts_layers else 1
    parts = max(stages, team.ranks_per_copy)  # each part averages its own gradients
    return parts * ((2 if team.uses_fp16 else 1) if small else tensors)


def _powersgd_numbers(team: Team, numbers: Bounds) -> Bounds:
    """Return the bounds of how many numbers PowerSGD sends in place of ``numbers``."""
    shapes = _shapes(team.graph)
    if (
        team.graph is None
        or team.train.parallel.divides_channels
        or len(shapes) < len(team.graph.parameters)
    ):
        return Bounds(0, numbers.high)
    sizes = [[powersgd_elements([shape], POWERSGD_RANK) for shape in options] for options in shapes]
    return Bounds(sum(map(min, sizes)), sum(map(max, sizes)) + team.copied_elements)


def _shapes(graph: Graph | None) -> list[set[tuple[int, ...]]]:
    """Return the possible shapes of each parameter: a product may use it transposed."""
    if graph is None:
        return []
    shapes: dict[str, set[tuple[int, ...]]] = {}
    for value in graph.values:
        name = value.parameter
        if name and value.shape and value.elements == graph.parameters.get(name):
            transposed = value.shape[::-1] if len(value.shape) == 2 else value.shape
            shapes.setdefault(name, set()).update((value.shape, transposed))
    return list(shapes.values())
