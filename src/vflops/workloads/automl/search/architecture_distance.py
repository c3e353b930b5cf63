"""The distance of two architectures: a metric over layers and skip connections.

Every extra layer or skip connection adds 1 to the distance; one that differs a little adds less.
The distance is the sum of two edit distances, that of the layers on the main chain and that of the
skip connections in order. So it is symmetric, zero only for equal signatures, and obeys the
triangle inequality (see ``alignment``). Sums are computed in integers, so they are exact.

A skip connection is described by its start relative to the previous one and by its length, so that
an inserted layer changes one description a little instead of all that follow.

Besides the total there is a distance for each aspect: layers, filters, kernels and skips. In their
own edit distances, filters and kernels count as much as a layer. In the total distance they are
negligible beside an extra layer, so a model could not learn that only they matter.
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
"""Layers since the start of the previous skip, length in layers, kind."""

MAX_COST = GAP
"""The maximum cost of a substitution; at most 2 · GAP keeps the distance a metric."""
PER_DOUBLING = 16
"""The cost of twice as many filters; this and the following costs are in units of layer / GAP."""
PER_PIXEL = 6
PER_POSITION = 6
OTHER_STRIDE = 16
OTHER_JOIN = 32


class Comparable(Protocol):
    """The properties of an architecture that its distance depends on."""

    @property
    def digest(self) -> str:
        """The digest of the architecture."""

    def signature_layers(self) -> tuple[Layer, ...]:
        """Return kind, filters, kernel and stride of the main chain's layers, in order."""

    def skips(self) -> tuple[tuple[int, int, str], ...]:
        """Return first layer, last layer and kind of the skip connections."""


class Distances:
    """The distances of architectures to a given list, in total and by aspect."""

    def __init__(self, architectures: Sequence[Comparable]) -> None:
        layers = [architecture.signature_layers() for architecture in architectures]
        self._layers = Alignment(layers, layer_cost)
        self._skips = Alignment([skip_steps(network) for network in architectures], skip_cost)
        self._filters = Alignment([_filters(row) for row in layers], filters_cost)
        self._kernels = Alignment([_kernels(row) for row in layers], kernels_cost)
        self._cache: dict[str, NDArray[np.float64]] = {}

    def total(self, architecture: Comparable) -> NDArray[np.float64]:
        """Return the distances of ``architecture`` to the list, in layers."""
        layers = self._layers.distances(architecture.signature_layers())
        skips = self._skips.distances(skip_steps(architecture))
        return (layers + skips) / GAP

    def by_aspect(self, architecture: Comparable) -> NDArray[np.float64]:
        """Return the distances by aspect, one row each: layers, filters, kernels, skips."""
        digest = architecture.digest
        if digest not in self._cache:
            layers = architecture.signature_layers()
            rows = (
                self._layers.distances(layers),
                self._filters.distances(_filters(layers)),
                self._kernels.distances(_kernels(layers)),
                self._skips.distances(skip_steps(architecture)),
            )
            self._cache[digest] = np.array(rows) / GAP
        return self._cache[digest]


def distance(a: Comparable, b: Comparable) -> float:
    """Return the distance of two architectures, in layers."""
    return float(Distances([b]).total(a)[0])


def distance_matrix(architectures: Sequence[Comparable]) -> NDArray[np.float64]:
    """Return all distances among ``architectures``, with shape (n, n)."""
    return matrix(Distances(architectures), architectures)


def matrix(distances: Distances, architectures: Sequence[Comparable]) -> NDArray[np.float64]:
    """Return the distances of ``architectures`` to the list of ``distances``, one row each."""
    return np.array(_compute_rows(distances.total, architectures))


def aspect_distances(
    distances: Distances, architectures: Sequence[Comparable]
) -> NDArray[np.float64]:
    """Return the distances by aspect, with shape (aspects, architectures, list)."""
    return np.array(_compute_rows(distances.by_aspect, architectures)).swapaxes(0, 1)


def _compute_rows(
    compute: Callable[[Comparable], NDArray[np.float64]], architectures: Sequence[Comparable]
) -> list[NDArray[np.float64]]:
    # Sorted neighbours have long common prefixes, which are computed only once.
    order = sorted(architectures, key=lambda network: network.signature_layers())
    rows = {network.digest: compute(network) for network in order}
    return [rows[network.digest] for network in architectures]


def layer_cost(a: Layer, b: Layer) -> int:
    """Return the cost of replacing layer ``a`` by ``b``, a metric; deleting a layer costs GAP.

    Distances on a line, the discrete metric, their sums, maxima and bounded versions are metrics.
    """
    if a == b:
        return 0
    if a[0] != b[0]:
        return MAX_COST
    filters = abs(_octaves(a[1]) - _octaves(b[1]))
    kernel = PER_PIXEL * abs(a[2] - b[2])
    stride = OTHER_STRIDE * (a[3] != b[3])
    return min(MAX_COST, max(1, filters + kernel + stride))  # 1: filters may round to the same


def filters_cost(a: int, b: int) -> int:
    """Return the cost of another number of filters; a doubling counts as two layers, the limit."""
    return min(2 * GAP, 2 * GAP // PER_DOUBLING * abs(a - b))


def kernels_cost(a: int, b: int) -> int:
    """Return the cost of another kernel size: 3 to 5 counts as one layer, 3 to 7 as two."""
    return min(2 * GAP, GAP // 2 * abs(a - b))


def skip_cost(a: Skip, b: Skip) -> int:
    """Return the cost of replacing skip ``a`` by ``b``, a metric for the same reasons."""
    position = PER_POSITION * (abs(a[0] - b[0]) + abs(a[1] - b[1]))
    return min(MAX_COST, position + OTHER_JOIN * (a[2] != b[2]))


def skip_steps(architecture: Comparable) -> tuple[Skip, ...]:
    """Return the skips in order, each as its step from the previous one, length and kind."""
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
