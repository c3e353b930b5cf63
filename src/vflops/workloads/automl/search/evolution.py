"""Searches without a model: a parent, and one random morph."""

from __future__ import annotations

import random
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from vflops.errors import UsageError
from vflops.workloads.automl.architecture.morphs import Limits
from vflops.workloads.automl.search.searcher import Proposal, Searcher, Trial, Why, walk


@dataclass(frozen=True)
class Mutation(Searcher):
    """Mutates a parent until something new comes out; who is a parent is the subclass's choice."""

    attempts: int = 200
    longest: int = 4
    """Morphs to go on from a child that is known already."""

    @abstractmethod
    def choose(self, count: int, rng: random.Random) -> int:
        """The rank of a parent out of ``count``."""

    def search(
        self, ranked: Sequence[Trial], known: frozenset[str], rng: random.Random, limits: Limits
    ) -> Proposal | None:
        """A new morph of a chosen parent, or None after so many attempts."""
        barren = set[str]()
        for attempt in range(1, self.attempts + 1):
            place = self.choose(len(ranked), rng)
            start = ranked[place].architecture
            found = walk(start, known, rng, limits, longest=self.longest, barren=barren)
            if found is not None:
                path, architecture = found
                why = Why(self.name, parent_rank=place, tried=attempt)
                return Proposal(architecture, ranked[place].id, path, why)
        return None


@dataclass(frozen=True)
class RandomSearch(Mutation):
    """Any trial may be the parent: what the other searches must beat."""

    name: ClassVar[str] = "random"

    def choose(self, count: int, rng: random.Random) -> int:
        """Any rank."""
        return rng.randrange(count)


@dataclass(frozen=True)
class EvolutionarySearch(Mutation):
    """The parent is the best of a few trials drawn at random: a tournament by rank."""

    name: ClassVar[str] = "evolution"
    tournament: int = 5

    def __post_init__(self) -> None:
        if self.tournament < 1:
            raise UsageError(f"tournament is {self.tournament}", hint="choose at least 1")

    def choose(self, count: int, rng: random.Random) -> int:
        """The best rank of ``tournament`` different ones."""
        return min(rng.sample(range(count), min(self.tournament, count)))
