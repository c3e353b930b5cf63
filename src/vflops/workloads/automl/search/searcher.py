"""The interface of a search: from the trials so far to the next architecture to train.

A searcher is a pure function of its arguments: the same trials, limits and state of the generator
give the same proposal, in whatever order the trials are handed in. It never proposes what was
tried or is pending. The caller trains the first architecture: a search goes on from it.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from dataclasses import dataclass, fields
from math import isfinite
from typing import ClassVar

from vflops.errors import UsageError
from vflops.workloads.automl.architecture import morphs
from vflops.workloads.automl.architecture.layer_graph import Architecture
from vflops.workloads.automl.architecture.morphs import Limits, Morph


class EmptySpace(UsageError):
    """No architecture within the limits is new."""


@dataclass(frozen=True)
class Trial:
    """An architecture that was trained, and its accuracy: measured, or predicted in a warm-up."""

    id: str
    architecture: Architecture
    accuracy: float


@dataclass(frozen=True)
class Why:
    """Why an architecture was proposed; the figures of a model are None where there is none."""

    searcher: str
    parent_rank: int
    """Of the parent in the history, 0 for the best."""
    tried: int
    """Architectures that were looked at for this proposal."""
    mean: float | None = None
    std: float | None = None
    acquisition: float | None = None

    def figures(self) -> dict[str, float]:
        """The figures that there are, by name."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in values.items() if isinstance(value, int | float)}


@dataclass(frozen=True)
class Proposal:
    """An architecture to train, and the morphs that lead to it from its parent."""

    architecture: Architecture
    parent: str
    morphs: tuple[Morph, ...]
    why: Why


class Searcher(ABC):
    """A way of choosing the next architecture."""

    name: ClassVar[str]

    def propose(
        self,
        history: Sequence[Trial],
        rng: random.Random,
        limits: Limits,
        *,
        pending: Collection[str] = (),
    ) -> Proposal:
        """The next architecture, neither in ``history`` nor among the digests in ``pending``."""
        ranked = rank(history)
        known = frozenset(trial.architecture.digest for trial in ranked) | frozenset(pending)
        proposal = self.search(ranked, known, rng, limits)
        if proposal is None:
            raise EmptySpace(
                f"{self.name} search found no new architecture within {limits}: "
                f"{len(ranked)} were tried, {len(pending)} are pending",
                hint="raise the limits of the search, or end the run here",
            )
        return proposal

    @abstractmethod
    def search(
        self, ranked: Sequence[Trial], known: frozenset[str], rng: random.Random, limits: Limits
    ) -> Proposal | None:
        """A proposal whose digest is not in ``known``, or None where there is none.

        ``ranked`` holds at least one trial, best first. ``known`` must only be asked for members:
        the order of its digests differs from process to process.
        """


def rank(history: Sequence[Trial]) -> tuple[Trial, ...]:
    """The trials from best to worst; equal ones by their id."""
    if not history:
        raise UsageError(
            "there is no trial to search from", hint="train the first architecture before a search"
        )
    for trial in history:
        if not isfinite(trial.accuracy):
            raise ValueError(f"the accuracy of trial {trial.id} is {trial.accuracy}: not a number")
    return tuple(sorted(history, key=lambda trial: (-trial.accuracy, trial.id)))


def walk(
    start: Architecture,
    known: frozenset[str],
    rng: random.Random,
    limits: Limits,
    *,
    longest: int,
    barren: set[str],
) -> tuple[tuple[Morph, ...], Architecture] | None:
    """Morph after morph from ``start`` up to the first architecture that is new, if there is.

    ``barren`` collects the digests of those without any morph within the limits: to find that out
    takes trying them all, so it is done once.
    """
    path: tuple[Morph, ...] = ()
    architecture = start
    while len(path) < longest and architecture.digest not in barren:
        drawn = morphs.sample(architecture, rng, limits)
        if drawn is None:
            barren.add(architecture.digest)
            return None
        morph, architecture = drawn
        path = (*path, morph)
        if architecture.digest not in known:
            return path, architecture
    return None
