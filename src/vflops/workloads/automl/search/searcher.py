"""The interface of a search: from the trials so far to the next architecture to train.

A searcher is a pure function of its arguments: the same trials, limits and generator state give the
same proposal, whatever the order of trials. It never proposes an architecture that was tried or is
pending. The caller trains the first architecture, which the search starts from.
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


class SearchSpaceExhausted(UsageError):
    """No architecture within the limits is new."""


@dataclass(frozen=True)
class Trial:
    """A trained architecture and its accuracy: measured, or predicted in a warm-up."""

    id: str
    architecture: Architecture
    accuracy: float


@dataclass(frozen=True)
class ProposalReason:
    """Why an architecture was proposed; a search without a model has no predictions."""

    searcher: str
    parent_rank: int
    """The rank of the parent in the history, 0 for the best."""
    tried: int
    """The number of architectures considered for this proposal."""
    mean: float | None = None
    std: float | None = None
    acquisition: float | None = None

    def figures(self) -> dict[str, float]:
        """Return the figures that are not None, by name."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in values.items() if isinstance(value, int | float)}


@dataclass(frozen=True)
class Proposal:
    """An architecture to train, and the morphs that lead to it from its parent."""

    architecture: Architecture
    parent: str
    morphs: tuple[Morph, ...]
    why: ProposalReason


class Searcher(ABC):
    """A method of choosing the next architecture."""

    name: ClassVar[str]

    def propose(
        self,
        history: Sequence[Trial],
        rng: random.Random,
        limits: Limits,
        *,
        pending: Collection[str] = (),
    ) -> Proposal:
        """Return the next architecture, neither in ``history`` nor in the digests of ``pending``.

        Raise ``SearchSpaceExhausted`` if there is none within ``limits``.
        """
        ranked = rank(history)
        known_digests = frozenset(trial.architecture.digest for trial in ranked) | frozenset(
            pending
        )
        proposal = self.search(ranked, known_digests, rng, limits)
        if proposal is None:
            raise SearchSpaceExhausted(
                f"{self.name} search found no new architecture within {limits}: "
                f"{len(ranked)} were tried, {len(pending)} are pending",
                hint="raise the limits of the search, or end the run here",
            )
        return proposal

    @abstractmethod
    def search(
        self,
        ranked: Sequence[Trial],
        known_digests: frozenset[str],
        rng: random.Random,
        limits: Limits,
    ) -> Proposal | None:
        """Return a proposal whose digest is not in ``known_digests``, if there is one.

        ``ranked`` contains at least one trial, best first. Use ``known_digests`` only to test
        membership, because its order differs between processes.
        """


def rank(history: Sequence[Trial]) -> tuple[Trial, ...]:
    """Return the trials from best to worst; ties are ordered by id."""
    if not history:
        raise UsageError(
            "there are no trials to search from", hint="train the first architecture first"
        )
    for trial in history:
        if not isfinite(trial.accuracy):
            raise ValueError(
                f"the accuracy of trial {trial.id} is {trial.accuracy}: expected a finite number"
            )
    return tuple(sorted(history, key=lambda trial: (-trial.accuracy, trial.id)))


def random_walk(
    start: Architecture,
    known_digests: frozenset[str],
    rng: random.Random,
    limits: Limits,
    *,
    max_morphs: int,
    dead_ends: set[str],
) -> tuple[tuple[Morph, ...], Architecture] | None:
    """Apply random morphs to ``start`` until the result is new; return None if that fails.

    ``dead_ends`` collects the digests of architectures without any morph within the limits, since
    they are expensive to detect.
    """
    path: tuple[Morph, ...] = ()
    architecture = start
    while len(path) < max_morphs and architecture.digest not in dead_ends:
        sampled = morphs.sample(architecture, rng, limits)
        if sampled is None:
            dead_ends.add(architecture.digest)
            return None
        morph, architecture = sampled
        path = (*path, morph)
        if architecture.digest not in known_digests:
            return path, architecture
    return None
