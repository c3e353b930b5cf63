"""Network morphisms: steps to a larger architecture that can compute the same function."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from itertools import combinations
from typing import Any, Literal

from vflops.errors import UsageError
from vflops.record.files.document import Data
from vflops.workloads.automl.architecture import surgery
from vflops.workloads.automl.architecture.added_cost import AddedCost, CostKey
from vflops.workloads.automl.architecture.cost_limits import (
    Limits,
    exceeded_limits,
    is_within_limits,
)
from vflops.workloads.automl.architecture.layer_graph import Architecture
from vflops.workloads.automl.architecture.widths import WidthGroups

Kind = Literal["deepen", "widen", "skip-add", "skip-concat", "kernel"]
Order = Callable[[list[Any]], list[Any]]

KINDS: tuple[Kind, ...] = ("deepen", "widen", "skip-add", "skip-concat", "kernel")
KERNELS = (3, 5, 7)
_WIDEN_FACTORS = (1.5, 2.0)
_WIDTH_MULTIPLE = 8
"""New widths are multiples of this if possible, which suits matrix units."""


class Morph(Data):
    """One change of an architecture."""

    kind: Kind
    layer: int
    """The convolution that changes, or the activation after which layers are inserted."""
    start: int | None = None
    """The activation where a skip begins."""
    filters: int | None = None
    """The new width of ``layer`` and of all layers that must have the same width."""
    kernel: int | None = None
    """The new kernel size of ``layer``."""


def possible(architecture: Architecture) -> list[Morph]:
    """Return every morph of ``architecture``, regardless of limits."""
    return [morph for kind in KINDS for morph in _proposals(architecture, kind, list)]


def sample(
    architecture: Architecture, rng: random.Random, limits: Limits
) -> tuple[Morph, Architecture] | None:
    """Return a random morph within ``limits`` and the resulting architecture, if there is one.

    All kinds are equally likely, and so are the positions within a kind.
    """
    return MorphSampler(architecture, limits).draw(rng)


class MorphSampler:
    """The morphs of one architecture within limits, for repeated drawing.

    Except for parameters, the cost of a child is known only once it is built. But in a network of
    repeated blocks many morphs add the same cost, so one that exceeds the limits rules out all
    others with the same cost key.
    """

    def __init__(self, architecture: Architecture, limits: Limits) -> None:
        self._architecture = architecture
        self._limits = limits
        self._added_cost = AddedCost(architecture)
        self._too_costly = set[CostKey]()

    def draw(self, rng: random.Random) -> tuple[Morph, Architecture] | None:
        """Draw a morph like ``sample``."""

        def shuffled(items: list[Any]) -> list[Any]:
            return rng.sample(items, len(items))

        for kind in shuffled(list(KINDS)):
            for morph in _proposals(self._architecture, kind, shuffled):
                child = self._child(morph)
                if child is not None:
                    return morph, child
        return None

    def _child(self, morph: Morph) -> Architecture | None:
        limit = self._limits.parameters
        added = self._added_cost.parameters(morph) if limit is not None else 0
        if limit is not None and self._architecture.parameters + added > limit:
            return None
        cost_key = self._added_cost.cost_key(morph)
        if cost_key in self._too_costly:
            return None
        child = _apply_unchecked(self._architecture, morph)
        if is_within_limits(child, self._limits):
            return child
        if self._limits.depth is None or child.depth <= self._limits.depth:
            # A depth limit rules out only this morph, since depth depends on the position.
            self._too_costly.add(cost_key)
        return None


def apply(architecture: Architecture, morph: Morph) -> Architecture:
    """Return ``architecture`` changed by ``morph``; raise ``UsageError`` if it does not fit."""
    fault = _find_fault(architecture, morph)
    if fault:
        raise UsageError(
            f"morph {morph.kind} does not fit layer {morph.layer} of the architecture: {fault}",
            hint="use one of morphs.possible(architecture)",
        )
    return _apply_unchecked(architecture, morph)


def _proposals(architecture: Architecture, kind: Kind, order: Order) -> Iterator[Morph]:
    """Yield the morphs of one kind, with positions in the order that ``order`` returns."""
    active = [id for id in architecture.chain if architecture.layer[id].relu]
    match kind:
        case "deepen":
            for id in order(active):
                yield Morph(kind=kind, layer=id)
        case "widen":
            convs = [architecture.layer[ids[0]] for ids in WidthGroups(architecture).groups()]
            for id, filters in order(
                [(x.id, width) for x in convs for width in _wider_widths(x.filters)]
            ):
                yield Morph(kind=kind, layer=id, filters=filters)
        case "kernel":
            convs = [x for x in architecture.layers if x.kind == "conv" and x.kernel in KERNELS]
            for id, kernel in order([(x.id, k) for x in convs for k in KERNELS if k > x.kernel]):
                yield Morph(kind=kind, layer=id, kernel=kernel)
        case "skip-add" | "skip-concat":
            fault = _skip_checker(architecture, kind)
            for start, end in order(list(combinations(active, 2))):
                if fault(start, end) is None:
                    yield Morph(kind=kind, layer=end, start=start)


def _wider_widths(width: int) -> list[int]:
    widths = set[int]()
    for target in (width * factor for factor in _WIDEN_FACTORS):
        rounded = int(target / _WIDTH_MULTIPLE + 0.5) * _WIDTH_MULTIPLE
        widths.add(rounded if rounded > width else int(target + 0.5))
    return sorted(widths)


def _apply_unchecked(architecture: Architecture, morph: Morph) -> Architecture:
    match morph:
        case Morph(kind="widen", filters=int(filters)):
            return surgery.widen(architecture, morph.layer, filters)
        case Morph(kind="kernel", kernel=int(kernel)):
            return surgery.enlarge(architecture, morph.layer, kernel)
        case Morph(kind="skip-add", start=int(start)):
            return surgery.add(architecture, start, morph.layer)
        case Morph(kind="skip-concat", start=int(start)):
            return surgery.concat(architecture, start, morph.layer)
    return surgery.deepen(architecture, morph.layer)


def _find_fault(architecture: Architecture, morph: Morph) -> str | None:
    """Return why ``morph`` cannot be applied; None if it can."""
    layer = architecture.layer.get(morph.layer)
    if layer is None:
        return "there is no such layer"
    if morph.kind == "widen":
        if layer.kind != "conv" or not WidthGroups(architecture).group(layer.id):
            return "its width is fixed"
        if morph.filters is None or morph.filters <= layer.filters:
            return f"filters is {morph.filters}: expected more than {layer.filters}"
        return None
    if morph.kind == "kernel":
        if layer.kind != "conv" or layer.kernel not in KERNELS:
            return "it is not a convolution of 3×3, 5×5 or 7×7"
        if morph.kernel not in KERNELS or morph.kernel <= layer.kernel:
            return f"kernel is {morph.kernel}: expected one of 3, 5, 7 above {layer.kernel}"
        return None
    ends = [morph.layer] if morph.kind == "deepen" else [morph.start, morph.layer]
    for id in ends:
        if id not in architecture.chain or not architecture.layer[id].relu:
            return f"layer {id} is not an activation on the main chain"
    return None if len(ends) == 1 else _skip_checker(architecture, morph.kind)(*ends)


def _skip_checker(architecture: Architecture, kind: Kind) -> Callable[..., str | None]:
    """Return a function that returns why a skip between two layers is impossible, or None."""
    shapes, positions = architecture.shapes, architecture.positions
    merge = kind.removeprefix("skip-")
    existing = set(architecture.skips())
    after = dict(zip(architecture.chain, architecture.chain[1:], strict=False))

    def fault(start: int, end: int) -> str | None:
        leaves, joins = positions[start], positions[end]
        if leaves >= joins:
            return f"the main chain has no convolution between layers {start} and {end}"
        if (leaves, joins, merge) in existing:
            return f"such a skip from layer {start} already exists"
        if merge == "add":
            reached = surgery.stride_between(architecture, start, end) is not None
            return None if reached else f"no stride maps layer {start} to layer {end}"
        if shapes[start][1:] != shapes[end][1:]:
            return f"the planes of layers {start} and {end} differ"
        if architecture.layer[after[end]] not in surgery.flexible_consumers(architecture, end):
            return f"the layer after layer {end} cannot take more channels"
        return None

    return fault


__all__ = [
    "KERNELS",
    "KINDS",
    "Kind",
    "Limits",
    "Morph",
    "MorphSampler",
    "apply",
    "exceeded_limits",
    "is_within_limits",
    "possible",
    "sample",
]
