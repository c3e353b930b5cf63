"""Bayesian search: the upper confidence bound of a Gaussian process, by simulated annealing.

The annealing starts with a queue of the whole history, best bound first. It takes the best
architecture from the queue, morphs it a few times, and adds a child to the queue if its bound is
greater, or with probability exp(−loss / T) if it is smaller; then T is lowered. The new child with
the greatest bound is the proposal. Losses are in standard deviations of the history's accuracies,
so that temperatures mean the same for every task.

The published 2.576 σ favours exploration: until accuracies differ, distance counts most. In the
plain edit distance a layer or a skip is farther away than a kernel or a width, so that if only
kernels matter, a dozen proposals would not change one. So the model uses the distance by aspect,
and learns from the accuracies which aspects they depend on.
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
"""Bounds are rounded to this many digits, so that the number of threads has no effect."""


@dataclass(frozen=True)
class Annealing:
    """Parameters of the annealing; the published program's values where it has them."""

    confidence: float = 2.576
    """Standard deviations above the mean; ± this many contain 99 % of a normal distribution."""
    hottest: float = 1.0
    coldest: float = 1e-4
    cooling: float = 0.5
    children: int = 16
    """Morphs drawn per architecture at each temperature."""
    longest: int = 4
    """The maximum number of morphs from a parent; the bound alone would lead ever further away."""
    most_trials: int = 500
    """The maximum number of trials in the model; of more, the best half and an even sample."""

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
            raise UsageError(f"{self} is not valid", hint=f"choose values with {broken}")


@dataclass(frozen=True)
class Candidate:
    """An architecture in the annealing, and what the model predicts for it."""

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
        """Return the new architecture with the greatest bound, if the annealing found one."""
        settings = self.annealing
        trials = [ranked[rank] for rank in _modelled(len(ranked), settings.most_trials)]
        model = Model(trials, settings.confidence)
        starts = [(index, (), trial.architecture) for index, trial in enumerate(trials)]
        queue: list[tuple[float, int, Candidate]] = []
        for candidate in model.candidates(starts):
            heappush(queue, (-candidate.bound, len(queue), candidate))
        seen = {trial.architecture.digest for trial in ranked}
        best: Candidate | None = None
        tried = 0
        temperature = settings.hottest
        while queue and temperature > settings.coldest:
            _, _, current = heappop(queue)
            for child in model.candidates(self._children(current, seen, rng, limits)):
                tried += 1
                loss = (current.bound - child.bound) / model.scale
                accepted = loss <= 0 or rng.random() < exp(-loss / temperature)
                if accepted and len(child.path) < settings.longest:
                    heappush(queue, (-child.bound, len(trials) + tried, child))
                new = child.architecture.digest not in known
                if new and (best is None or child.bound > best.bound):
                    best = child
            if best is not None:  # steps count only once something new was found
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
    """The Gaussian process of the trials, and the bounds that it gives."""

    def __init__(self, trials: Sequence[Trial], confidence: float) -> None:
        architectures = [trial.architecture for trial in trials]
        self._distances = Distances(architectures)
        self._process = gaussian_process.fit(
            aspects(self._distances, architectures), [trial.accuracy for trial in trials]
        )
        self._confidence = confidence
        self.scale = self._process.scale

    def candidates(
        self, derived: Sequence[tuple[int, tuple[Morph, ...], Architecture]]
    ) -> list[Candidate]:
        """Return candidates with predictions for architectures given with parent and path."""
        if not derived:
            return []
        rows = aspects(self._distances, [architecture for _, _, architecture in derived])
        means, stds = self._process.predict(rows)
        bounds = np.round(means + self._confidence * stds, DIGITS)
        return [
            Candidate(architecture, parent, path, float(mean), float(std), float(bound))
            for (parent, path, architecture), mean, std, bound in zip(
                derived, means, stds, bounds, strict=True
            )
        ]


def _modelled(count: int, most: int) -> list[int]:
    """Return the ranks to model: all, or ``most``: the best and an even sample of the rest."""
    if count <= most:
        return list(range(count))
    top = most // 2
    others = np.linspace(top, count - 1, most - top).round().astype(int)
    return [*range(top), *others.tolist()]
