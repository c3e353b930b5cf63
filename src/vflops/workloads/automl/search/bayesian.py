"""Bayesian search: the upper confidence bound of a Gaussian process, by simulated annealing.

The annealing starts with a queue of the whole history, best bound first. It takes the best
architecture from the queue, morphs it a few times, and adds a child to the queue if its bound is
greater, or with probability exp(−loss / T) if it is smaller; then T is lowered. The new child with
the greatest bound is the proposal. Losses are in standard deviations of the history's accuracies,
so that temperatures mean the same for every task.

The published bound, 2.576 standard deviations above the mean, favours exploration: until accuracies
differ, distance counts most. In the plain edit distance an extra layer or skip is a larger change
than another kernel or width. If only kernels mattered, a dozen proposals would not change one. So
the model uses the distance by aspect, and learns which aspects the accuracies depend on.
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
from vflops.workloads.automl.search.distance_processes import DistancesTo, distances_to
from vflops.workloads.automl.search.searcher import Proposal, ProposalReason, Searcher, Trial

DIGITS = 9
"""Bounds are rounded to this many digits, so that they do not depend on the number of threads."""


@dataclass(frozen=True)
class Annealing:
    """Parameters of the annealing; defaults follow the published program where it has them."""

    confidence: float = 2.576
    """Standard deviations above the mean; ±2.576 contain 99 % of a normal distribution."""
    max_temperature: float = 1.0
    min_temperature: float = 1e-4
    cooling_factor: float = 0.5
    children: int = 16
    """Morphs drawn per architecture at each temperature."""
    max_morphs: int = 4
    """The maximum number of morphs from a parent; without it, the search would drift ever further
    away, because bounds grow with the distance."""
    max_trials: int = 500
    """The maximum number of trials to model. If there are more, half of those modelled are the best
    trials, and the others an even sample of the rest."""

    def __post_init__(self) -> None:
        valid = {
            "min_temperature > 0": self.min_temperature > 0,
            "min_temperature < max_temperature": self.min_temperature < self.max_temperature,
            "0 < cooling_factor < 1": 0 < self.cooling_factor < 1,
            "confidence ≥ 0": self.confidence >= 0,
            "children ≥ 1": self.children >= 1,
            "max_morphs ≥ 1": self.max_morphs >= 1,
            "max_trials ≥ 2": self.max_trials >= 2,
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
    distances: DistancesTo = distances_to
    """How distances are computed: in this process, or in several with the same result."""

    def search(
        self,
        ranked: Sequence[Trial],
        known_digests: frozenset[str],
        rng: random.Random,
        limits: Limits,
    ) -> Proposal | None:
        """Return the new architecture with the greatest bound, if the annealing found one."""
        settings = self.annealing
        trials = [ranked[rank] for rank in _select_ranks(len(ranked), settings.max_trials)]
        model = Model(trials, settings.confidence, self.distances)
        starts = [(index, (), trial.architecture) for index, trial in enumerate(trials)]
        queue: list[tuple[float, int, Candidate]] = []
        for candidate in model.candidates(starts):
            heappush(queue, (-candidate.bound, len(queue), candidate))
        seen = {trial.architecture.digest for trial in ranked}
        best: Candidate | None = None
        tried = 0
        temperature = settings.max_temperature
        while queue and temperature > settings.min_temperature:
            _, _, current = heappop(queue)
            for child in model.candidates(self._children(current, seen, rng, limits)):
                tried += 1
                loss = (current.bound - child.bound) / model.scale
                accepted = loss <= 0 or rng.random() < exp(-loss / temperature)
                if accepted and len(child.path) < settings.max_morphs:
                    heappush(queue, (-child.bound, len(trials) + tried, child))
                is_new = child.architecture.digest not in known_digests
                if is_new and (best is None or child.bound > best.bound):
                    best = child
            if best is not None:  # cool down only once something new was found
                temperature *= settings.cooling_factor
        if best is None:
            return None
        parent = trials[best.parent]
        why = ProposalReason(
            self.name, ranked.index(parent), tried, best.mean, best.std, best.bound
        )
        return Proposal(best.architecture, parent.id, best.path, why)

    def _children(
        self, current: Candidate, seen: set[str], rng: random.Random, limits: Limits
    ) -> list[tuple[int, tuple[Morph, ...], Architecture]]:
        children = []
        choice = morphs.MorphSampler(current.architecture, limits)
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
    """A Gaussian process fitted to trials, and the bounds that it predicts."""

    def __init__(
        self,
        trials: Sequence[Trial],
        confidence: float,
        distances: DistancesTo = distances_to,
    ) -> None:
        architectures = [trial.architecture for trial in trials]
        self._distances = distances(architectures)
        self._process = gaussian_process.fit(
            self._distances(architectures), [trial.accuracy for trial in trials]
        )
        self._confidence = confidence
        self.scale = self._process.scale

    def candidates(
        self, derived: Sequence[tuple[int, tuple[Morph, ...], Architecture]]
    ) -> list[Candidate]:
        """Return a candidate with predictions for each (parent, path, architecture)."""
        if not derived:
            return []
        rows = self._distances([architecture for _, _, architecture in derived])
        means, stds = self._process.predict(rows)
        bounds = np.round(means + self._confidence * stds, DIGITS)
        return [
            Candidate(architecture, parent, path, float(mean), float(std), float(bound))
            for (parent, path, architecture), mean, std, bound in zip(
                derived, means, stds, bounds, strict=True
            )
        ]


def _select_ranks(count: int, limit: int) -> list[int]:
    """Return the ranks to model: all of them, or the best and an even sample of the rest."""
    if count <= limit:
        return list(range(count))
    top = limit // 2
    others = np.linspace(top, count - 1, limit - top).round().astype(int)
    return [*range(top), *others.tolist()]
