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
    sent_bytes: float = 0.0
    """Bytes that all ranks of the model send each other."""

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

    def sent_bytes(self, group: Group, *, times: float = 1.0) -> float:
        """Return the bytes that all ranks send in ``times`` such exchanges, by any algorithm."""
        return times * 2 * (group.ranks - 1) * self.size


def data(compute_s: float, group: Group, exchanging: GradientExchange) -> StepTime:
    """Return T + the exposed part of an all-reduce of the gradients + the time to compress them."""
    waiting_s = exchanging.waiting_s(group, compute_s)
    return StepTime(
        compute_s,
        exchange_s=waiting_s,
        coding_s=exchanging.coding_s,
        sent_bytes=exchanging.sent_bytes(group),
    )


def sharded(
    compute_s: float, group: Group, exchanging: GradientExchange, block_share: float = 1.0
) -> StepTime:
    """Return T + the exposed part of all-gathers of weights and a reduce-scatter of gradients.

    Weights in blocks, a share of ``block_share``, are gathered in the forward and in the backward
    pass, the others once. Gathering or scattering all weights costs half of an all-reduce.
    """
    times = (2 + block_share) / 2
    return StepTime(
        compute_s,
        exchange_s=exchanging.waiting_s(group, compute_s, times=times),
        coding_s=exchanging.coding_s,
        sent_bytes=exchanging.sent_bytes(group, times=times),
    )


def tensor(compute_s: float, group: Group, sum_bytes: float, sums: int) -> StepTime:
    """Return T + the time of ``sums`` all-reduces of n·A bytes, none of which overlaps.

    A is ``sum_bytes``, the bytes of a sum for the batch of one accelerator; the n ranks of a group
    work on n times as many samples.
    """
    size = group.ranks * sum_bytes
    exchange_s = sums * EXCHANGES["ring"](group, size, 1)
    return StepTime(
        compute_s, exchange_s=exchange_s, sent_bytes=sums * 2 * (group.ranks - 1) * size
    )


def with_gathering(step: StepTime, group: Group, size: float) -> StepTime:
    """Return the step with an all-gather of ``size`` bytes after it, half of an all-reduce."""
    if not size:
        return step
    gather_s = EXCHANGES["ring"](group, size, 1) / 2
    return replace(
        step,
        exchange_s=step.exchange_s + gather_s,
        sent_bytes=step.sent_bytes + (group.ranks - 1) * size,
    )


def with_tied_weights(step: StepTime, group: Group, size: float) -> StepTime:
    """Return the step with an all-reduce of ``size`` bytes between the first and the last rank."""
    if not size or group.ranks == 1:
        return step
    return replace(
        step,
        exchange_s=step.exchange_s + group.slowest.time_s(size, 2),
        sent_bytes=step.sent_bytes + 2 * size,
    )


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
    return StepTime(
        compute_s,
        bubble_s,
        filling_s + max(0.0, steady_s - compute_s),
        sent_bytes=2 * (chunks * stages - 1) * stages * activations,
    )


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
    return StepTime(
        compute_s,
        (stages - 1) * compute_s,
        exchange_s,
        sent_bytes=2 * (stages - 1) * stages * activations,
    )


def mixed(
    inner: StepTime, compute_s: float, group: Group, exchanging: GradientExchange, sharing: int
) -> StepTime:
    """Return the step of a shared model + the exposed all-reduce of B/S bytes between copies.

    ``group`` has one of the S = ``sharing`` ranks of each copy.
    """
    waiting_s = exchanging.waiting_s(group, compute_s)
    return replace(
        inner,
        exchange_s=inner.exchange_s + waiting_s,
        coding_s=exchanging.coding_s,
        sent_bytes=group.ranks * inner.sent_bytes + sharing * exchanging.sent_bytes(group),
    )


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
