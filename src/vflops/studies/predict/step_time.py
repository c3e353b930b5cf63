"""The time of a training step in each parallel mode.

The work per accelerator is constant: P accelerators train on P times the batch of one accelerator,
whose step takes the time T. A mode that splits the model gives each of S ranks 1/S of the layers
and S times the samples, so its computation also takes T. The modes differ in how long accelerators
wait, for other stages of a pipeline (the bubble) or for messages (the exchange).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from vflops.studies.predict.exchange_time import EXCHANGES, ExchangeMode, Group, Link, exposed_time


@dataclass(frozen=True)
class StepTime:
    """The time of a step, divided by activity."""

    compute_s: float
    bubble_s: float = 0.0
    """Waiting for other stages."""
    exchange_s: float = 0.0
    """Waiting for messages."""
    reading_s: float = 0.0
    """Waiting for the shared file system, beyond the rest of the step."""
    coding_s: float = 0.0
    """Compressing gradients."""

    @property
    def total_s(self) -> float:
        """The time of the whole step."""
        waiting_s = self.bubble_s + self.exchange_s + self.reading_s
        return self.compute_s + self.coding_s + waiting_s


@dataclass(frozen=True)
class GradientExchange:
    """How gradients are exchanged."""

    mode: ExchangeMode
    size: float
    """Bytes of gradients per rank, in the precision of the exchange."""
    overlap: float = 0.0
    """The share of T that can overlap with the exchange."""
    buckets: int = 1
    last_share: float | None = None
    """The share of the bytes in the last bucket; None if all buckets are equal."""
    coding_s: float = 0.0
    """The time to compress and decompress, which does not overlap with the computation."""

    def waiting_s(self, group: Group, compute_s: float, *, times: float = 1.0) -> float:
        """Return how long a step waits for ``times`` such exchanges."""
        duration_s = times * EXCHANGES[self.mode](group, self.size, self.buckets)
        last = 1 / self.buckets if self.last_share is None else self.last_share
        return exposed_time(duration_s, hidden_s=self.overlap * compute_s, last=last)


def data(compute_s: float, group: Group, exchanging: GradientExchange) -> StepTime:
    """Return T + the exposed part of an all-reduce of the gradients + the time to compress them."""
    waiting_s = exchanging.waiting_s(group, compute_s)
    return StepTime(compute_s, exchange_s=waiting_s, coding_s=exchanging.coding_s)


def sharded(compute_s: float, group: Group, exchanging: GradientExchange) -> StepTime:
    """Return T + the exposed part of two all-gathers of weights and a reduce-scatter of gradients.

    Each of the three costs half of an all-reduce.
    """
    waiting_s = exchanging.waiting_s(group, compute_s, times=1.5)
    return StepTime(compute_s, exchange_s=waiting_s, coding_s=exchanging.coding_s)


def tensor(compute_s: float, group: Group, activations: float, layers: int) -> StepTime:
    """Return T + 2L · all-reduce(n·A): each layer has one forward and one backward, both exposed.

    L is the number of layers, and A the bytes of a layer's output for the batch of one accelerator;
    the n ranks of a group work on n times as many samples.
    """
    exchange_s = EXCHANGES["ring"](group, group.ranks * activations, 1) if group.ranks > 1 else 0.0
    return StepTime(compute_s, exchange_s=2 * layers * exchange_s)


def bubble_share(stages: int, micro_batches: int, chunks: int = 1) -> float:
    """Return the idle share of a stage, (S−1) / (v·m + S−1), for m micro-batches.

    v is the number of ``chunks``, the stages that each rank has: 1 for GPipe and 1F1B.
    """
    return (stages - 1) / (chunks * micro_batches + stages - 1)


def pipeline(
    compute_s: float, group: Group, activations: float, micro_batches: int, chunks: int = 1
) -> StepTime:
    """Return T · (1 + (S−1)/(v·m)) + the time of the messages that do not overlap.

    A micro-batch is S/m of an accelerator's batch, so S/m · A bytes cross a cut in each direction,
    v·m times per stage. Filling and draining the pipeline waits for 2(v·S−1) messages. In between,
    a stage sends while it computes, and waits only if its 2·v·m messages over the slowest link
    take longer than T.
    """
    stages = group.ranks
    if stages == 1:
        return StepTime(compute_s)
    size = stages / micro_batches * activations
    cuts = _cuts(group, chunks)
    filling_s = 2 * sum(count * link.time_s(size) for link, count in cuts)
    steady_s = 2 * chunks * micro_batches * group.slowest.time_s(size)
    bubble_s = compute_s * (stages - 1) / (chunks * micro_batches)
    return StepTime(compute_s, bubble_s, filling_s + max(0.0, steady_s - compute_s))


def model(compute_s: float, group: Group, activations: float) -> StepTime:
    """Return S · T + the time of 2(S−1) messages of S·A bytes, as one stage works at a time.

    No message is sent while a stage computes.
    """
    stages = group.ranks
    if stages == 1:
        return StepTime(compute_s)
    exchange_s = 2 * sum(
        count * link.time_s(stages * activations) for link, count in _cuts(group, 1)
    )
    return StepTime(compute_s, (stages - 1) * compute_s, exchange_s)


def mixed(
    inner: StepTime, compute_s: float, group: Group, exchanging: GradientExchange
) -> StepTime:
    """Return the step of a shared model + the exposed all-reduce of B/S bytes between copies."""
    waiting_s = exchanging.waiting_s(group, compute_s)
    return replace(inner, exchange_s=inner.exchange_s + waiting_s, coding_s=exchanging.coding_s)


def copy_group(group: Group, sharing: int, near: int | None = None) -> Group:
    """Return the group of ranks that hold the same part of a model, one from each copy.

    ``sharing`` ranks share a copy. The exchanges of all parts on a node share the node's link.
    """
    between = group.between
    if between is not None:
        parts = min(sharing, group.node)
        between = Link(between.bandwidth / parts, between.latency_s)
    node = max(1, group.node // sharing)
    return Group(group.ranks // sharing, node, group.within, between, near)


def _cuts(group: Group, chunks: int) -> list[tuple[Link, int]]:
    """Return the links that a micro-batch crosses on its way through all stages, and how often.

    For each further chunk it returns from the last stage to the first, over the link between nodes
    if there is more than one node.
    """
    back = (chunks - 1) if group.nodes > 1 else 0
    far = chunks * (group.nodes - 1) + back
    near = chunks * group.ranks - 1 - far
    return list(zip(group.links, filter(None, (near, far)), strict=True))
