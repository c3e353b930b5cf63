"""Searches without a surrogate model: they apply random morphs to a chosen parent."""

from __future__ import annotations

import random
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from vflops.errors import UsageError
from vflops.workloads.automl.architecture.morphs import Limits
from vflops.workloads.automl.search.searcher import (
    Proposal,
    ProposalReason,
    Searcher,
    Trial,
    random_walk,
)


@dataclass(frozen=True)
class Mutation(Searcher):
    """Mutates a parent, which the subclass chooses, until the result is new."""

    attempts: int = 200
    max_morphs: int = 4
    """The maximum number of morphs to apply in a row while the result is already known."""

    @abstractmethod
    def choose_parent(self, count: int, rng: random.Random) -> int:
        """Return the rank of a parent out of ``count``."""

    def search(
        self,
        ranked: Sequence[Trial],
        known_digests: frozenset[str],
        rng: random.Random,
        limits: Limits,
    ) -> Proposal | None:
        """Return a new architecture from a chosen parent; None if all attempts fail."""
        dead_ends = set[str]()
        for attempt in range(1, self.attempts + 1):
            parent_rank = self.choose_parent(len(ranked), rng)
            parent = ranked[parent_rank]
            result = random_walk(
                parent.architecture,
                known_digests,
                rng,
                limits,
                max_morphs=self.max_morphs,
                dead_ends=dead_ends,
            )
            if result is not None:
                path, architecture = result
                why = ProposalReason(self.name, parent_rank=parent_rank, tried=attempt)
                return Proposal(architecture, parent.id, path, why)
        return None


@dataclass(frozen=True)
class RandomSearch(Mutation):
    """Any trial may be the parent: the baseline for other searches."""

    name: ClassVar[str] = "random"

    def choose_parent(self, count: int, rng: random.Random) -> int:
        """Return a random rank."""
        return rng.randrange(count)


@dataclass(frozen=True)
class EvolutionarySearch(Mutation):
    """The parent is the best of a few randomly drawn trials: a tournament by rank."""

    name: ClassVar[str] = "evolution"
    tournament: int = 5

    def __post_init__(self) -> None:
        if self.tournament < 1:
            raise UsageError(f"tournament is {self.tournament}", hint="choose at least 1")

    def choose_parent(self, count: int, rng: random.Random) -> int:
        """Return the best of ``tournament`` different ranks."""
        return min(rng.sample(range(count), min(self.tournament, count)))
