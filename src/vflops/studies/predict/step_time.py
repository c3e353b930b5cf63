"""The time of a training step in each parallel mode.

The work of an accelerator stays: P accelerators train on P times the batch of one, whose step takes
T. A mode that splits the model gives each of S ranks 1/S of the layers and S times the samples, so
T is left, and what differs is what accelerators wait for: a bubble, or an exchange.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from vflops.studies.predict.exchange_time import EXCHANGES, ExchangeMode, Group, Link, exposed


@dataclass(frozen=True)
class StepTime:
    """Where the seconds of a step go."""

    compute_s: float
    bubble_s: float = 0.0
    """While other stages work."""
    exchange_s: float = 0.0
    """Waiting for messages."""
    reading_s: float = 0.0
    """Waiting for the shared file system, after all else."""
    coding_s: float = 0.0
    """Compressing gradients."""

    @property
    def total_s(self) -> float:
        """The whole step."""
        waiting_s = self.bubble_s + self.exchange_s + self.reading_s
        return self.compute_s + self.coding_s + waiting_s


@dataclass(frozen=True)
class Exchanging:
    """How gradients are exchanged."""

    mode: ExchangeMode
    size: float
    """Bytes on the wire that every rank holds: the gradients, in the precision of the exchange."""
    overlap: float = 0.0
    """The share of T under which the exchange can go on."""
    buckets: int = 1
    last: float | None = None
    """The share of the last bucket; None: all are alike."""
    coding_s: float = 0.0
    """To compress what a rank holds, and back: it computes meanwhile, so nothing hides it."""

    def waits_s(self, group: Group, compute_s: float, *, times: float = 1.0) -> float:
        """Seconds that a step waits for ``times`` such exchanges."""
        taken_s = times * EXCHANGES[self.mode](group, self.size, self.buckets)
        last = 1 / self.buckets if self.last is None else self.last
        return exposed(taken_s, hidden_s=self.overlap * compute_s, last=last)


def data(compute_s: float, group: Group, exchanging: Exchanging) -> StepTime:
    """T + what is exposed of an all-reduce of the gradients + what it takes to compress them."""
    waits_s = exchanging.waits_s(group, compute_s)
    return StepTime(compute_s, exchange_s=waits_s, coding_s=exchanging.coding_s)


def sharded(compute_s: float, group: Group, exchanging: Exchanging) -> StepTime:
    """T + what is exposed of two all-gathers of the weights and a reduce-scatter of the gradients.

    Each of the three is half of an all-reduce.
    """
    waits_s = exchanging.waits_s(group, compute_s, times=1.5)
    return StepTime(compute_s, exchange_s=waits_s, coding_s=exchanging.coding_s)


def tensor(compute_s: float, group: Group, activations: float, layers: int) -> StepTime:
    """T + 2L · all-reduce(n·A): one forward and one backward for each of L layers, none hidden.

    A are the bytes of a layer's output for the batch of one accelerator; the ranks of a group work
    on n times as many samples.
    """
    each = EXCHANGES["ring"](group, group.ranks * activations, 1) if group.ranks > 1 else 0.0
    return StepTime(compute_s, exchange_s=2 * layers * each)


def bubble_share(stages: int, micro_batches: int, chunks: int = 1) -> float:
    """The share of the time that a stage idles: (S−1) / (v·m + S−1); GPipe and 1F1B have v = 1."""
    return (stages - 1) / (chunks * micro_batches + stages - 1)


def pipeline(
    compute_s: float, group: Group, activations: float, micro_batches: int, chunks: int = 1
) -> StepTime:
    """T · (1 + (S−1)/(v·m)) + the messages that nothing hides, or all where links are the bound.

    A micro-batch is S/m of an accelerator's batch, so a cut passes S/m · A bytes each way, and a
    stage v·m of them. Filling and draining wait for 2(v·S−1) messages; in between a stage computes
    while it sends, unless its 2·v·m messages by the slowest link take longer than T.
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
    """S · T + 2(S−1) messages of S·A bytes: one stage at a time, a pipeline of one micro-batch.

    Nothing is sent while anything computes.
    """
    stages = group.ranks
    if stages == 1:
        return StepTime(compute_s)
    sent = 2 * sum(count * link.time_s(stages * activations) for link, count in _cuts(group, 1))
    return StepTime(compute_s, (stages - 1) * compute_s, sent)


def mixed(inner: StepTime, compute_s: float, group: Group, exchanging: Exchanging) -> StepTime:
    """A shared model, and what is exposed of its copies' all-reduce of B/S bytes."""
    waits_s = exchanging.waits_s(group, compute_s)
    return replace(inner, exchange_s=inner.exchange_s + waits_s, coding_s=exchanging.coding_s)


def copies(group: Group, sharing: int, near: int | None = None) -> Group:
    """The ranks that hold the same part of a model, of D = n/S copies.

    Where copies lie within nodes, the exchanges of all parts share the node's link; where each
    spans nodes, those of the parts that are on a node do.
    """
    between = group.between
    if between is not None:
        parts = min(sharing, group.node)
        between = Link(between.bandwidth / parts, between.latency_s)
    node = max(1, group.node // sharing)
    return Group(group.ranks // sharing, node, group.within, between, near)


def _cuts(group: Group, chunks: int) -> list[tuple[Link, int]]:
    """The links on the way of a micro-batch through all stages, each with how often it crosses it.

    From the last stage to the first, for the next of ``chunks``, it crosses the longest way.
    """
    back = (chunks - 1) if group.nodes > 1 else 0
    far = chunks * (group.nodes - 1) + back
    near = chunks * group.ranks - 1 - far
    return list(zip(group.links, filter(None, (near, far)), strict=True))
