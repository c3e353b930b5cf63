"""Where the ranks of M base models run: M × P slots of the nodes; plain Python.

One rule places a model. What is left of it goes to the node with the fewest free slots that still
hold all of that; where no node does, the model takes the largest untouched node whole. So a
model that fits in a node is never split, one that does not takes whole nodes first, and only its
remainder shares a node. Of equal nodes a model never uses more than it must.
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

_NEAREST = 3


@dataclass(frozen=True)
class Node:
    """A computer and its slots: accelerators or, without any, shares of its CPUs."""

    name: str
    slots: int


@dataclass(frozen=True)
class Placement:
    """Where the ranks of a base model run, and in which wave."""

    model: int
    wave: int
    places: Places


@dataclass(frozen=True)
class Plan:
    """M models of P ranks, each rank on a slot of its own."""

    models: int
    ranks: int
    nodes: tuple[Node, ...]
    placements: tuple[Placement, ...]
    waves: int

    @property
    def scale(self) -> int:
        """Slots in use at once: M × P (equation 5) unless models wait for others."""
        return self.ranks * sum(placement.wave == 0 for placement in self.placements)

    @property
    def claims_weak_scaling(self) -> bool:
        """Whether all models run at once: in waves the work grows, and the machine does not."""
        return self.waves == 1


def plan(
    nodes: Sequence[Node], models: int, ranks: int, *, waves: bool = False, may_wait: bool = True
) -> Plan:
    """The places of all models; those that do not fit at once run in ``waves``, or are refused.

    ``may_wait``: whether waves could be asked for.
    """
    _check(nodes, models=models, ranks=ranks)
    first = list(islice(_places(nodes, ranks), models))
    if not first or (len(first) < models and not waves):
        raise _refusal(nodes, models, ranks, len(first), may_wait=may_wait)
    placements = []
    for model in range(models):
        wave, place = divmod(model, len(first))
        placements.append(Placement(model, wave, first[place]))
    return Plan(models, ranks, tuple(nodes), tuple(placements), -(-models // len(first)))


def defaults(
    nodes: Sequence[Node],
    models: int | None = None,
    ranks: int | None = None,
    *,
    scale: int | None = None,
) -> tuple[int, int]:
    """M and P where not both are given: P is a node's slots, M as many models as then fit.

    Nodes that differ count by the smallest. Where the given M does not fit, P is the most ranks
    that do. With a ``scale``, M × P equals it (equation 5).
    """
    _check(nodes, models=models, ranks=ranks, scale=scale)
    node = min(each.slots for each in nodes)
    if scale is not None:
        return _of_scale(nodes, models, ranks, scale, node)
    if ranks is None:
        tried = range(node, 0, -1) if models is not None else ()
        ranks = next((p for p in tried if capacity(nodes, p, models) == models), node)
    if models is None:
        models = capacity(nodes, ranks)
        if models == 0:
            raise _refusal(nodes, 1, ranks, 0)
    return models, ranks


def _of_scale(
    nodes: Sequence[Node], models: int | None, ranks: int | None, scale: int, node: int
) -> tuple[int, int]:
    slots = sum(each.slots for each in nodes)
    if scale > slots:
        raise UsageError(
            f"the scale {scale} is too large for {_named(nodes)}", hint=f"choose at most {slots}"
        )
    pairs = [(scale // p, p) for p in range(1, scale + 1) if scale % p == 0]
    fitting = [(m, p) for m, p in pairs if capacity(nodes, p, m) == m]
    wanted = [(m, p) for m, p in fitting if m == (models or m) and p == (ranks or p)]
    if not wanted:
        near = _nearest(fitting, models or max(scale // (ranks or node), 1), ranks or node)
        raise UsageError(
            f"{models or 'M'} models × {ranks or 'P'} ranks do not make the scale {scale}"
            f" (equation 5) on {_named(nodes)}",
            hint=_words(near),
        )
    within = [pair for pair in wanted if pair[1] <= node]
    return within[-1] if within else wanted[0]


def capacity(nodes: Sequence[Node], ranks: int, limit: int | None = None) -> int:
    """How many models of ``ranks`` ranks run at once, counted up to ``limit``."""
    return sum(1 for _ in islice(_places(nodes, ranks), limit))


def nearest_pairs(nodes: Sequence[Node], models: int, ranks: int) -> list[tuple[int, int]]:
    """Pairs (M, P) near the given one that fit: more models, more ranks, and the whole machine."""
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
    """The few that are fewest doublings away."""

    def distance(pair: tuple[int, int]) -> float:
        return abs(log(pair[0] / models)) + abs(log(pair[1] / ranks))

    return sorted(pairs, key=lambda pair: (distance(pair), pair))[:_NEAREST]


def _places(nodes: Sequence[Node], ranks: int) -> Iterator[Places]:
    """The places of one model after the other, until no further one fits."""
    free = [node.slots for node in nodes]
    most = max(free)
    with_free: list[list[int]] = [[] for _ in range(most + 1)]  # nodes by free slots: heaps
    for index, slots in enumerate(free):
        with_free[slots].append(index)
    untouched = [(-slots, index) for index, slots in enumerate(free)]
    heapify(untouched)  # the largest first, equal ones in their order

    def node_for(need: int) -> int | None:
        for slots in range(need, most + 1):
            heap = with_free[slots]
            while heap and free[heap[0]] != slots:
                heappop(heap)  # has been used since
            if heap:
                return heap[0]
        while untouched and free[untouched[0][1]] < -untouched[0][0]:
            heappop(untouched)
        return untouched[0][1] if untouched else None

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
            raise UsageError(f"{name} is {value}", hint="give a whole number from 1 up")
    if not nodes:
        raise UsageError("there is no node to run on", hint="name at least one")
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
            " what is left free on several nodes is not put together"
        )
    hint = _words(nearest_pairs(nodes, models, ranks))
    waves = "; or run them in waves, --waves" if fitting and may_wait else ""
    return UsageError(message, hint=hint + waves)


def _words(pairs: Sequence[tuple[int, int]]) -> str:
    """``choose 4 models of 2 ranks, 2 of 4 or 8 of 1``."""
    listed = [_pair(*pairs[0]), *(f"{m} of {p}" for m, p in pairs[1:])]
    return "choose " + " or ".join(filter(None, [", ".join(listed[:-1]), listed[-1]]))


def _pair(models: int, ranks: int) -> str:
    return f"{models} model{'s' * (models > 1)} of {ranks} rank{'s' * (ranks > 1)}"


def _named(nodes: Sequence[Node]) -> str:
    slots = sum(node.slots for node in nodes)
    return f"{len(nodes)} node{'s' * (len(nodes) > 1)} with {slots} slot{'s' * (slots > 1)}"
