"""Bayesian search: the upper confidence bound of a Gaussian process, by simulated annealing.

The annealing starts from the whole history, best bound first. It takes the best architecture that
waits, morphs it a few times, and lets each child wait too where its bound is greater, or with
probability exp(−loss / T) where it is smaller; then T falls. The child with the greatest bound that
is new is the proposal. Losses are in standard deviations of the history's accuracies, so that the
temperatures mean the same for every task.

The published 2.576 σ explores: until accuracies differ, what is far counts most. In the plain edit
distance a layer or a skip is farther than a kernel or a width, so that where only kernels matter a
dozen proposals would not touch one. So the model sees the distance by aspect, and learns from the
accuracies which aspects they depend on.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from math import exp
from typing import ClassVar

import numpy as np

from vflops.errors import UsageError
from vflops.workloads.automl.architecture import morphs
from vflops.workloads.automl.architecture.layer_graph import Architecture
from vflops.workloads.automl.architecture.morphs import Limits, Morph
from vflops.workloads.automl.search import gaussian_process
from vflops.workloads.automl.search.architecture_distance import Distances, aspects
from vflops.workloads.automl.search.searcher import Proposal, Searcher, Trial, Why

DIGITS = 9
"""Bounds are compared to so many: rounding by another number of threads must not decide."""


@dataclass(frozen=True)
class Annealing:
    """How the bound is searched; the published program's values where it has them."""

    confidence: float = 2.576
    """Standard deviations above the mean: 99 % of a normal distribution lie below and above."""
    hottest: float = 1.0
    coldest: float = 1e-4
    cooling: float = 0.5
    children: int = 16
    """Morphs that are drawn of an architecture at each temperature."""
    longest: int = 4
    """Morphs from a parent at most: the bound alone would lead ever further away."""
    most_trials: int = 500
    """Trials that are modelled at most; of more, the best half and an even choice of the rest."""

    def __post_init__(self) -> None:
        valid = {
            "0 < coldest < hottest": 0 < self.coldest < self.hottest,
            "0 < cooling < 1": 0 < self.cooling < 1,
            "confidence ≥ 0": self.confidence >= 0,
            "children ≥ 1": self.children >= 1,
            "longest ≥ 1": self.longest >= 1,
            "most_trials ≥ 2": self.most_trials >= 2,
        }
        if not all(valid.values()):
            broken = ", ".join(rule for rule, holds in valid.items() if not holds)
            raise UsageError(f"{self} does not fit", hint=f"choose values with {broken}")


@dataclass(frozen=True)
class Candidate:
    """An architecture on the way, and what the model thinks of it."""

    architecture: Architecture
    parent: int
    path: tuple[Morph, ...]
    mean: float
    std: float
    bound: float


@dataclass(frozen=True)
class BayesianSearch(Searcher):
    """The published search: Gaussian process over an edit distance, UCB, simulated annealing."""

    name: ClassVar[str] = "bayesian"
    annealing: Annealing = field(default_factory=Annealing)

    def search(
        self, ranked: Sequence[Trial], known: frozenset[str], rng: random.Random, limits: Limits
    ) -> Proposal | None:
        """The new architecture with the greatest bound that the annealing met, if it met one."""
        settings = self.annealing
        trials = [ranked[place] for place in _modelled(len(ranked), settings.most_trials)]
        model = Model(trials, settings.confidence)
        starts = [(place, (), trial.architecture) for place, trial in enumerate(trials)]
        waiting: list[tuple[float, int, Candidate]] = []
        for candidate in model.candidates(starts):
            heappush(waiting, (-candidate.bound, len(waiting), candidate))
        seen = {trial.architecture.digest for trial in ranked}
        best: Candidate | None = None
        tried = 0
        temperature = settings.hottest
        while waiting and temperature > settings.coldest:
            _, _, current = heappop(waiting)
            for child in model.candidates(self._children(current, seen, rng, limits)):
                tried += 1
                loss = (current.bound - child.bound) / model.scale
                accepted = loss <= 0 or rng.random() < exp(-loss / temperature)
                if accepted and len(child.path) < settings.longest:
                    heappush(waiting, (-child.bound, len(trials) + tried, child))
                new = child.architecture.digest not in known
                if new and (best is None or child.bound > best.bound):
                    best = child
            if best is not None:  # until something new is met, steps do not count
                temperature *= settings.cooling
        if best is None:
            return None
        parent = trials[best.parent]
        why = Why(self.name, ranked.index(parent), tried, best.mean, best.std, best.bound)
        return Proposal(best.architecture, parent.id, best.path, why)

    def _children(
        self, current: Candidate, seen: set[str], rng: random.Random, limits: Limits
    ) -> list[tuple[int, tuple[Morph, ...], Architecture]]:
        children = []
        choice = morphs.Choice(current.architecture, limits)
        for _ in range(self.annealing.children):
            drawn = choice.draw(rng)
            if drawn is None:
                break
            morph, architecture = drawn
            if architecture.digest not in seen:
                seen.add(architecture.digest)
                children.append((current.parent, (*current.path, morph), architecture))
        return children


class Model:
    """The Gaussian process of some trials, asked for bounds."""

    def __init__(self, trials: Sequence[Trial], confidence: float) -> None:
        architectures = [trial.architecture for trial in trials]
        self._distances = Distances(architectures)
        self._process = gaussian_process.fit(
            aspects(self._distances, architectures), [trial.accuracy for trial in trials]
        )
        self._confidence = confidence
        self.scale = self._process.scale

    def candidates(
        self, found: Sequence[tuple[int, tuple[Morph, ...], Architecture]]
    ) -> list[Candidate]:
        """Architectures, each with its parent and path, and what the model thinks of them."""
        if not found:
            return []
        rows = aspects(self._distances, [architecture for _, _, architecture in found])
        means, stds = self._process.predict(rows)
        bounds = np.round(means + self._confidence * stds, DIGITS)
        return [
            Candidate(architecture, parent, path, float(mean), float(std), float(bound))
            for (parent, path, architecture), mean, std, bound in zip(
                found, means, stds, bounds, strict=True
            )
        ]


def _modelled(count: int, most: int) -> list[int]:
    """The ranks that are modelled: all, or the best half of ``most`` and an even choice."""
    if count <= most:
        return list(range(count))
    top = most // 2
    others = np.linspace(top, count - 1, most - top).round().astype(int)
    return [*range(top), *others.tolist()]
