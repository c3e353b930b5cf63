"""How far apart two architectures are: a metric over layers and skip connections.

The distance is 1 for every layer or skip connection too many, and less than that for one that
differs a little. It is the sum of two edit distances, of the layers of the main chain and of the
skip connections in their order, so it is symmetric, zero only for equal signatures, and obeys the
triangle inequality (``alignment`` says why). All of it is whole numbers: nothing is rounded.

A skip connection is told by where it starts after the one before it and how long it is. So a layer
that is put in moves one of them a little, not all that follow.

Told apart by aspect, filters and kernels have edit distances of their own, in which they count as
much as a layer does: the distance as a whole hardly sees them beside a layer too many, and a model
could not learn that they are all that matters.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import log2
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from vflops.workloads.automl.search.alignment import GAP, Alignment

Layer = tuple[str, int, int, int]
"""Kind, filters, kernel, stride."""
Skip = tuple[int, int, str]
"""Layers from the start of the skip before, length in layers, kind."""

MOST = GAP
"""A substitution costs at most this: the bound keeps the whole a metric (at most 2 · GAP)."""
PER_DOUBLING = 16
PER_PIXEL = 6
PER_PLACE = 6
OTHER_STRIDE = 16
OTHER_JOIN = 32


class Comparable(Protocol):
    """What of an architecture the distance sees."""

    @property
    def digest(self) -> str:
        """Names the architecture."""

    def signature_layers(self) -> tuple[Layer, ...]:
        """The layers of the main chain in order: kind, filters, kernel, stride."""

    def skips(self) -> tuple[tuple[int, int, str], ...]:
        """The skip connections: first and last layer, kind."""


class Distances:
    """The distances of architectures to a given list of them, as a whole and by aspect."""

    def __init__(self, architectures: Sequence[Comparable]) -> None:
        layers = [each.signature_layers() for each in architectures]
        self._layers = Alignment(layers, layer_cost)
        self._skips = Alignment([skip_steps(each) for each in architectures], skip_cost)
        self._filters = Alignment([_filters(each) for each in layers], filters_cost)
        self._kernels = Alignment([_kernels(each) for each in layers], kernels_cost)
        self._known: dict[str, NDArray[np.float64]] = {}

    def of(self, architecture: Comparable) -> NDArray[np.float64]:
        """The distance of ``architecture`` to each of the list, in layers."""
        layers = self._layers.distances(architecture.signature_layers())
        skips = self._skips.distances(skip_steps(architecture))
        return (layers + skips) / GAP

    def by_aspect(self, architecture: Comparable) -> NDArray[np.float64]:
        """The same told apart, a row each: all of the layers, their filters, kernels; skips."""
        digest = architecture.digest
        if digest not in self._known:
            layers = architecture.signature_layers()
            found = (
                self._layers.distances(layers),
                self._filters.distances(_filters(layers)),
                self._kernels.distances(_kernels(layers)),
                self._skips.distances(skip_steps(architecture)),
            )
            self._known[digest] = np.array(found) / GAP
        return self._known[digest]


def distance(a: Comparable, b: Comparable) -> float:
    """The distance of two architectures, in layers."""
    return float(Distances([b]).of(a)[0])


def distance_matrix(architectures: Sequence[Comparable]) -> NDArray[np.float64]:
    """All distances among ``architectures``: (n, n)."""
    return matrix(Distances(architectures), architectures)


def matrix(distances: Distances, architectures: Sequence[Comparable]) -> NDArray[np.float64]:
    """The distances of ``architectures`` to the list of ``distances``, a row each."""
    return np.array(_each(distances.of, architectures))


def aspects(distances: Distances, architectures: Sequence[Comparable]) -> NDArray[np.float64]:
    """The same told apart by aspect: (aspects, architectures, list)."""
    return np.array(_each(distances.by_aspect, architectures)).swapaxes(0, 1)


def _each(
    of: Callable[[Comparable], NDArray[np.float64]], architectures: Sequence[Comparable]
) -> list[NDArray[np.float64]]:
    # Sorted, neighbours begin alike, and the work for what they share is done once.
    order = sorted(architectures, key=lambda each: each.signature_layers())
    rows = {each.digest: of(each) for each in order}
    return [rows[each.digest] for each in architectures]


def layer_cost(a: Layer, b: Layer) -> int:
    """What turning layer ``a`` into ``b`` costs, a metric: GAP is the cost of leaving one out.

    Distances on a line, the discrete metric, their sums, maxima and bounded versions are metrics.
    """
    if a == b:
        return 0
    if a[0] != b[0]:
        return MOST
    filters = abs(_octaves(a[1]) - _octaves(b[1]))
    kernel = PER_PIXEL * abs(a[2] - b[2])
    stride = OTHER_STRIDE * (a[3] != b[3])
    return min(MOST, max(1, filters + kernel + stride))  # 1: filters that round to the same


def filters_cost(a: int, b: int) -> int:
    """What turning octaves of filters into others costs: a doubling is two layers, and the most."""
    return min(2 * GAP, 2 * GAP // PER_DOUBLING * abs(a - b))


def kernels_cost(a: int, b: int) -> int:
    """What turning a kernel size into another costs: from 3 to 5 is a layer, to 7 two."""
    return min(2 * GAP, GAP // 2 * abs(a - b))


def skip_cost(a: Skip, b: Skip) -> int:
    """What turning skip connection ``a`` into ``b`` costs, a metric for the same reasons."""
    places = PER_PLACE * (abs(a[0] - b[0]) + abs(a[1] - b[1]))
    return min(MOST, places + OTHER_JOIN * (a[2] != b[2]))


def skip_steps(architecture: Comparable) -> tuple[Skip, ...]:
    """The skip connections in order, each told by its step from the one before and its length."""
    skips = sorted(architecture.skips())
    starts = [0, *(start for start, _, _ in skips)]
    return tuple(
        (start - before, end - start, kind)
        for before, (start, end, kind) in zip(starts, skips, strict=False)
    )


def _filters(layers: tuple[Layer, ...]) -> tuple[int, ...]:
    return tuple(_octaves(filters) for _, filters, _, _ in layers)


def _kernels(layers: tuple[Layer, ...]) -> tuple[int, ...]:
    return tuple(kernel for _, _, kernel, _ in layers)


def _octaves(filters: int) -> int:
    return round(PER_DOUBLING * log2(filters)) if filters > 0 else 0
