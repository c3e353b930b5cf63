"""Computes the distances of architectures on several cores, with the same result as on one.

A distance is an integer that depends only on its two architectures. So architectures are divided
among processes, each computes the distances of its part to the whole list, and the parts are put
together in order: the result is the same to the last bit, whatever the number of processes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess

import numpy as np
from numpy.typing import NDArray

from vflops.python_start import safe_spawning
from vflops.workloads.automl.search.architecture_distance import (
    Comparable,
    Distances,
    Layer,
    aspect_distances,
)

MIN_ARCHITECTURES = 32
"""A shorter list is faster on one core than divided."""

AspectDistances = Callable[[Sequence[Comparable]], NDArray[np.float64]]
"""Returns the distances of architectures to a list, with shape (aspects, architectures, list)."""
DistancesTo = Callable[[Sequence[Comparable]], AspectDistances]
"""Takes the list, and returns a function that computes the distances to it."""


def distances_to(architectures: Sequence[Comparable]) -> AspectDistances:
    """Return a function that computes distances to ``architectures`` in this process."""
    distances = Distances(architectures)
    return lambda others: aspect_distances(distances, others)


@dataclass(frozen=True)
class Signature:
    """All that the distance of an architecture depends on; small enough to send."""

    digest: str
    layers: tuple[Layer, ...]
    joins: tuple[tuple[int, int, str], ...]

    @classmethod
    def of(cls, architecture: Comparable) -> Signature:
        """Return the signature of an architecture."""
        return cls(architecture.digest, architecture.signature_layers(), architecture.skips())

    def signature_layers(self) -> tuple[Layer, ...]:
        """Return the layers of the main chain."""
        return self.layers

    def skips(self) -> tuple[tuple[int, int, str], ...]:
        """Return the skip connections."""
        return self.joins


class DistanceProcesses:
    """Processes that compute distances; they end with the process that started them."""

    def __init__(self, processes: int) -> None:
        """``processes`` includes this process."""
        self._context = get_context("spawn")
        self._helpers: list[tuple[BaseProcess, Connection]] = []
        for _ in range(processes - 1):
            ours, theirs = self._context.Pipe()
            process = self._context.Process(target=_serve, args=(theirs,), daemon=True)
            with safe_spawning():
                process.start()
            theirs.close()  # so that the end of a helper is noticed here
            self._helpers.append((process, ours))

    def distances_to(self, architectures: Sequence[Comparable]) -> AspectDistances:
        """Return a function that computes distances to ``architectures`` on all cores."""
        if not self._helpers or len(architectures) < MIN_ARCHITECTURES:
            return distances_to(architectures)
        pipes = [pipe for _, pipe in self._helpers]
        own_distances = distances_to(architectures)
        try:
            signatures = [Signature.of(architecture) for architecture in architectures]
            for pipe in pipes:
                pipe.send((True, signatures))
        except OSError:
            return self._without_helpers(architectures)

        fallback: list[AspectDistances] = []

        def compute(wanted: Sequence[Comparable]) -> NDArray[np.float64]:
            if fallback:
                return fallback[0](wanted)
            if len(wanted) <= len(pipes):
                return own_distances(wanted)
            # Sorted, because neighbours with a long common prefix are faster in one process.
            order = sorted(range(len(wanted)), key=lambda i: wanted[i].signature_layers())
            own, *others = np.array_split(order, len(pipes) + 1)
            try:
                for pipe, part in zip(pipes, others, strict=True):
                    pipe.send((False, [Signature.of(wanted[i]) for i in part]))
                parts = [own_distances([wanted[i] for i in own])]
                parts += [pipe.recv() for pipe in pipes]
            except (OSError, EOFError):  # a helper was killed
                fallback.append(self._without_helpers(architectures))
                return fallback[0](wanted)
            return np.concatenate(parts, axis=1)[:, np.argsort(order)]

        return compute

    def close(self) -> None:
        """End the helpers."""
        for process, pipe in self._helpers:
            pipe.close()
            process.terminate()
            process.join()
        self._helpers = []

    def _without_helpers(self, architectures: Sequence[Comparable]) -> AspectDistances:
        self.close()
        return distances_to(architectures)


def _serve(pipe: Connection) -> None:
    """Compute distances to the list received last, until the other process ends."""
    compute = distances_to([])
    try:
        while True:
            is_list, signatures = pipe.recv()
            if is_list:
                compute = distances_to(signatures)
            else:
                pipe.send(compute(signatures))
    except (EOFError, OSError, KeyboardInterrupt):
        return
