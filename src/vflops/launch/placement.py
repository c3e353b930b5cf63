"""Places M base models with P ranks each on M × P slots of the nodes.

One rule places a model: its remaining ranks go to the node with the fewest free slots that can
take all of them; if there is none, they fill the largest unused node. So a model that fits on a
node is never split, a larger one takes whole nodes first, and only its remainder shares a node. Of
equal nodes a model never uses more than necessary.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import islice
from math import log

from vflops.errors import UsageError

Places = tuple[tuple[str, tuple[int, ...]], ...]
"""Node names and slot numbers, in the order of ranks."""

THIS_MACHINE = "this machine"
"""The name of the only node of a run without a scheduler."""
_NEAREST = 3


@dataclass(frozen=True)
class NodeResources:
    """What a node offers to jobs."""

    name: str
    cores: int
    memory_mb: int | None = None
    gpus: int = 0
    gpu_type: str | None = None


@dataclass(frozen=True)
class Node:
    """A computer and its slots: accelerators or, if it has none, shares of its CPUs."""

    name: str
    slots: int
    resources: NodeResources | None = None
    """None for a node that the user described by its slots."""
    gpus_per_slot: int = 0
    fixed: bool = False
    """Whether the user set the number of slots."""
    rehearsed: bool = False
    """Whether the slots stand for accelerators of another node, and share what this one has."""

    @property
    def accelerated(self) -> bool:
        """Whether a slot is an accelerator; it is on nodes that the user described."""
        return self.gpus_per_slot > 0 or self.resources is None

    @property
    def filled(self) -> bool:
        """Whether a model has by default as many ranks as the node has slots."""
        return self.accelerated or self.rehearsed


@dataclass(frozen=True)
class Placement:
    """The slots on which the ranks of a base model run, and the wave in which they do."""

    model: int
    wave: int
    places: Places


@dataclass(frozen=True)
class Plan:
    """M models of P ranks, each rank on its own slot."""

    models: int
    ranks: int
    nodes: tuple[Node, ...]
    placements: tuple[Placement, ...]
    waves: int

    @property
    def scale(self) -> int:
        """The number of slots in use at once: M × P (equation 5), unless models run in waves."""
        return self.ranks * sum(placement.wave == 0 for placement in self.placements)

    @property
    def claims_weak_scaling(self) -> bool:
        """Whether all models run at once: with waves the work grows, but the machine does not."""
        return self.waves == 1


def plan(
    nodes: Sequence[Node], models: int, ranks: int, *, waves: bool = False, may_wait: bool = True
) -> Plan:
    """Return the placement of all models; raise UsageError if they do not fit without ``waves``.

    ``may_wait`` says whether the error suggests waves.
    """
    _check(nodes, models=models, ranks=ranks)
    first = list(islice(_places(nodes, ranks), models))
    if not first or (len(first) < models and not waves):
        raise _refusal(nodes, models, ranks, len(first), may_wait=may_wait)
    placements = []
    for model in range(models):
        wave, index = divmod(model, len(first))
        placements.append(Placement(model, wave, first[index]))
    return Plan(models, ranks, tuple(nodes), tuple(placements), -(-models // len(first)))


def defaults(
    nodes: Sequence[Node],
    models: int | None = None,
    ranks: int | None = None,
    *,
    scale: int | None = None,
) -> tuple[int, int]:
    """Return M and P, with defaults for those not given.

    P is the number of slots of the smallest node, and M the number of models that then fit. If a
    given M does not fit, P is the largest number of ranks with which it does. With a ``scale``,
    M × P equals it (equation 5), and P is by default the number of slots of the smallest node.
    """
    _check(nodes, models=models, ranks=ranks, scale=scale)
    smallest = min(node.slots for node in nodes)
    if scale is not None:
        return _of_scale(nodes, models, ranks, scale, smallest)
    if ranks is None:
        tried = range(smallest, 0, -1) if models is not None else ()
        ranks = next((p for p in tried if capacity(nodes, p, models) == models), smallest)
    if models is None:
        models = capacity(nodes, ranks)
        if models == 0:
            raise _refusal(nodes, 1, ranks, 0)
    return models, ranks


def _of_scale(
    nodes: Sequence[Node], models: int | None, ranks: int | None, scale: int, node_slots: int
) -> tuple[int, int]:
    slots = sum(node.slots for node in nodes)
    if scale > slots:
        raise UsageError(
            f"the scale {scale} is too large for {_named(nodes)}", hint=f"choose at most {slots}"
        )
    degree = ranks or (node_slots if models is None else max(scale // models, 1))
    number = models or scale // degree
    if number * degree == scale and capacity(nodes, degree, number) == number:
        return number, degree
    raise _scale_refusal(nodes, models, ranks, scale, node_slots)


def _scale_refusal(
    nodes: Sequence[Node], models: int | None, ranks: int | None, scale: int, node_slots: int
) -> UsageError:
    """Return the error for a scale that is not M × P, with the nearest pairs that are."""
    degrees = [p for p in range(1, scale + 1) if scale % p == 0]
    whole_nodes = [p for p in degrees if p <= node_slots or p % node_slots == 0]
    pairs = [(scale // p, p) for p in whole_nodes]
    fitting = [(m, p) for m, p in pairs if capacity(nodes, p, m) == m]
    degree = ranks or node_slots
    hint = _words(_nearest(fitting, models or max(scale // degree, 1), degree))
    message = (
        f"{_number(models, 'M', 'model')} × {_number(ranks, 'P', 'rank')}"
        f" do not make the scale {scale}"
        f" (equation 5) on {_named(nodes)}"
    )
    if models is None and ranks is None:
        message += f", where P is the {node_slots} slots of a node"
        hint += " with --ranks"
    if models is None:
        below = scale // degree * degree
        multiples = [n for n in (below, below + degree) if _fits(nodes, n, degree)]
        hint += f"; or --scale {' or '.join(map(str, multiples))}" if multiples else ""
    return UsageError(message, hint=hint)


def _fits(nodes: Sequence[Node], scale: int, ranks: int) -> bool:
    """Whether models of ``ranks`` ranks use exactly ``scale`` slots at once."""
    models = scale // ranks
    return 0 < models == capacity(nodes, ranks, models)


def capacity(nodes: Sequence[Node], ranks: int, limit: int | None = None) -> int:
    """Return how many models of ``ranks`` ranks run at once, counted up to ``limit``."""
    return sum(1 for _ in islice(_places(nodes, ranks), limit))


def nearest_pairs(nodes: Sequence[Node], models: int, ranks: int) -> list[tuple[int, int]]:
    """Return pairs (M, P) near the given one that fit, including those that fill the machine."""
    slots = sum(node.slots for node in nodes)
    pairs = {(capacity(nodes, ranks), ranks)}
    for p in range(slots // models, 0, -1):
        if capacity(nodes, p, models) == models:
            pairs.add((models, p))
            break
    whole = ((slots // p, p) for p in range(1, slots + 1) if slots % p == 0)
    pairs |= {(m, p) for m, p in whole if capacity(nodes, p, m) == m}
    return _nearest((pair for pair in pairs if pair[0]), models, ranks)


def _nearest(pairs: Iterable[tuple[int, int]], models: int, ranks: int) -> list[tuple[int, int]]:
    """Return the few pairs that are nearest on a logarithmic scale."""

    def distance(pair: tuple[int, int]) -> float:
        return abs(log(pair[0] / models)) + abs(log(pair[1] / ranks))

    return sorted(pairs, key=lambda pair: (distance(pair), pair))[:_NEAREST]


def _places(nodes: Sequence[Node], ranks: int) -> Iterator[Places]:
    """Yield the places of one model after another, until no further one fits."""
    free = [node.slots for node in nodes]
    most = max(free)
    with_free: list[list[int]] = [[] for _ in range(most + 1)]  # heaps of nodes, by free slots
    for index, slots in enumerate(free):
        with_free[slots].append(index)
    unused = [(-slots, index) for index, slots in enumerate(free)]
    heapify(unused)  # the largest first, equal ones in order

    def node_for(need: int) -> int | None:
        for slots in range(need, most + 1):
            heap = with_free[slots]
            while heap and free[heap[0]] != slots:
                heappop(heap)  # has been used since
            if heap:
                return heap[0]
        while unused and free[unused[0][1]] < -unused[0][0]:
            heappop(unused)
        return unused[0][1] if unused else None

    while True:
        need, taken = ranks, []
        while need:
            chosen = node_for(need)
            if chosen is None:
                return
            take = min(need, free[chosen])
            used = nodes[chosen].slots - free[chosen]
            taken.append((nodes[chosen].name, tuple(range(used, used + take))))
            free[chosen] -= take
            need -= take
            heappush(with_free[free[chosen]], chosen)
        yield tuple(taken)


def _check(nodes: Sequence[Node], **numbers: int | None) -> None:
    for name, value in numbers.items():
        if value is not None and value < 1:
            raise UsageError(f"{name} is {value}", hint="use a whole number of at least 1")
    if not nodes:
        raise UsageError("there are no nodes to run on", hint="name at least one")
    seen = set()
    for node in nodes:
        if node.slots < 1:
            raise UsageError(
                f"node {node.name} has {node.slots} slots", hint="leave it out, or give it slots"
            )
        if node.name in seen:
            raise UsageError(f"node {node.name} is listed twice", hint="list every node once")
        seen.add(node.name)


def _refusal(
    nodes: Sequence[Node], models: int, ranks: int, fitting: int, *, may_wait: bool = True
) -> UsageError:
    needed, slots = models * ranks, sum(node.slots for node in nodes)
    message = f"no room for {_pair(models, ranks)} ({needed} slots) on {_named(nodes)}"
    if needed <= slots:
        message = (
            f"of {_pair(models, ranks)} only {fitting} fit on {_named(nodes)}:"
            " free slots of several nodes are not combined"
        )
    hint = _words(nearest_pairs(nodes, models, ranks))
    waves = "; or run them in waves with --waves" if fitting and may_wait else ""
    is_local = [node.name for node in nodes] == [THIS_MACHINE]
    cluster = "; or on the nodes of a cluster with --on slurm" if is_local else ""
    return UsageError(message, hint=hint + waves + cluster)


def _words(pairs: Sequence[tuple[int, int]]) -> str:
    """Return a hint such as ``choose 4 models of 2 ranks, 2 of 4 or 8 of 1``."""
    listed = [_pair(*pairs[0]), *(f"{m} of {p}" for m, p in pairs[1:])]
    return "choose " + " or ".join(filter(None, [", ".join(listed[:-1]), listed[-1]]))


def _pair(models: int, ranks: int) -> str:
    return f"{_number(models, 'M', 'model')} of {_number(ranks, 'P', 'rank')}"


def _named(nodes: Sequence[Node]) -> str:
    slots = sum(node.slots for node in nodes)
    return f"{_number(len(nodes), 'N', 'node')} with {_number(slots, 'S', 'slot')}"


def _number(number: int | None, symbol: str, one: str) -> str:
    """Return ``1 rank``, ``2 ranks``, or ``P ranks`` if the number is not given."""
    return f"{symbol if number is None else number} {one}{'s' * (number != 1)}"
