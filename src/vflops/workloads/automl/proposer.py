"""Proposes the next candidate of a worker: an architecture and how to train it."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from math import ceil

from vflops.record.formats.job import DataFacts
from vflops.workloads.automl.architecture import morphs
from vflops.workloads.automl.architecture.layer_graph import Architecture
from vflops.workloads.automl.architecture.morphs import Limits, Morph
from vflops.workloads.automl.architecture.starting_networks import resnet
from vflops.workloads.automl.search import rounds
from vflops.workloads.automl.search.evolution import RandomSearch
from vflops.workloads.automl.search.searcher import Proposal, Trial
from vflops.workloads.automl.search.searchers import searcher
from vflops.workloads.automl.search.tuning import Setting, Space, TuningResult, suggest
from vflops.workloads.automl.search_events import Candidate, Hyperparameters, Turn
from vflops.workloads.automl.settings import AutomlSettings
from vflops.workloads.automl.turns import KnownResults

_FIRST = "first"
"""The name of the starting network as a parent, as long as nothing is trained."""


def first_network(settings: AutomlSettings, data: DataFacts) -> Architecture:
    """Return the network that a search starts from: the workload's ResNet."""
    network, size = settings.network, settings.size
    classes = int(data.facts["classes"])
    return resnet(
        network.blocks,
        (3, size, size),
        classes,
        width=network.width,
        stem=network.stem,
        stride_in_1x1=settings.search.v1,
    )


def limits_of(settings: AutomlSettings, batch: int | None = None) -> Limits:
    """Return the limits of a candidate trained with ``batch``, by default the workload's."""
    limits = settings.search.limits
    parts = settings.train.ranks * settings.train.accumulate
    return Limits(
        parameters=limits.parameters,
        operations_per_sample=limits.operations,
        memory_bytes=limits.memory_bytes,
        depth=limits.depth,
        batch=(batch or settings.train.batch) // parts,
        bytes_per_value=4 if settings.train.precision in ("fp32", "tf32") else 2,
    )


@dataclass(frozen=True)
class Proposer:
    """Proposes candidates; the same turn and the same earlier results give the same candidate."""

    settings: AutomlSettings
    seed: int
    first: Architecture
    candidate: Callable[[Turn], Candidate]
    """Returns an earlier proposal."""

    def propose(self, turn: Turn, known: KnownResults) -> Candidate:
        """Return the candidate of a turn."""
        began_s = time.monotonic()
        rng = random.Random(f"{self.seed} {turn.name}")  # a string: the same everywhere
        chosen = self._first(turn) or self._search(known, rng)
        hyper, tuned = self._hyper(turn, known, rng)
        chosen, hyper = self._grown(chosen, hyper, known)
        max_epochs = self.settings.train.epochs
        return Candidate(
            turn=turn,
            architecture=chosen.architecture,
            parent=None if chosen.parent == _FIRST else chosen.parent,
            morphs=chosen.morphs,
            hyper=hyper,
            tuned=tuned,
            epochs=rounds.epochs(turn.round, max_epochs),
            patience=ceil(
                rounds.patience(turn.round, max_epochs) / self.settings.train.evaluate_every
            ),
            known=len(known.results),
            known_sha256=known.sha256,
            took_s=round(time.monotonic() - began_s, 6),
            figures=chosen.figures,
        )

    def _first(self, turn: Turn) -> _Chosen | None:
        """The very first candidate is the starting network itself."""
        return _Chosen(self.first, _FIRST, ()) if turn == Turn(round=0, worker=0) else None

    def _search(self, known: KnownResults, rng: random.Random) -> _Chosen:
        pending = [self.candidate(turn).architecture.digest for turn in known.proposed]
        trials = self._trials(known)
        if trials:
            method = searcher(self.settings.search.searcher)
        else:  # without any result: a random step from the starting network
            trials, method = [Trial(_FIRST, self.first, 0.0)], RandomSearch()
        proposal = method.propose(trials, rng, limits_of(self.settings), pending=pending)
        return _Chosen(proposal.architecture, proposal.parent, proposal.morphs, _figures(proposal))

    def _trials(self, known: KnownResults) -> list[Trial]:
        return [
            Trial(
                result.turn.name,
                self.candidate(result.turn).architecture,
                result.trained.search_accuracy,
            )
            for result in known.results
            if result.trained is not None
        ]

    def _hyper(
        self, turn: Turn, known: KnownResults, rng: random.Random
    ) -> tuple[Hyperparameters, bool]:
        """The workload's batch in the first rounds, later what tuning suggests."""
        settings = self.settings
        if turn.round + 1 < settings.search.tune_from:
            return Hyperparameters(batch=settings.train.batch), False
        space = Space(settings.batches, tuple(sorted(settings.search.kernels)))
        # Results without a kernel size were not tuned, and were trained for fewer epochs.
        tried = [
            TuningResult(Setting(hyper.batch, hyper.kernel), result.trained.accuracy)
            for result in known.results
            if result.trained is not None and (hyper := result.trained.hyper).kernel is not None
        ]
        suggested = suggest(space, tried, rng.getrandbits(32))
        return Hyperparameters(batch=suggested.batch, kernel=suggested.kernel), True

    def _grown(
        self, chosen: _Chosen, hyper: Hyperparameters, known: KnownResults
    ) -> tuple[_Chosen, Hyperparameters]:
        """Enlarge the kernels to the tuned size, if that is within the limits and new.

        A batch that does not fit the network is replaced by the workload's. The returned kernel
        size is the actual one: kernels never shrink, so it may be larger than suggested.
        """
        if hyper.kernel is None:
            return chosen, hyper
        kernel = hyper.kernel
        if not morphs.is_within_limits(chosen.architecture, limits_of(self.settings, hyper.batch)):
            hyper = Hyperparameters(batch=self.settings.train.batch, kernel=hyper.kernel)
        network, more = grow_kernels(chosen.architecture, kernel)
        before = [self.candidate(turn) for turn in known.proposed]
        new = all(
            (earlier.architecture.digest, earlier.hyper.batch) != (network.digest, hyper.batch)
            for earlier in before
        )
        limits = limits_of(self.settings, hyper.batch)
        if not more or (new and morphs.is_within_limits(network, limits)):
            chosen = replace(chosen, architecture=network, morphs=(*chosen.morphs, *more))
        return chosen, Hyperparameters(batch=hyper.batch, kernel=least_kernel(chosen.architecture))


@dataclass(frozen=True)
class _Chosen:
    """An architecture and how it was derived."""

    architecture: Architecture
    parent: str
    morphs: tuple[Morph, ...]
    figures: dict[str, float] = field(default_factory=dict)


def grow_kernels(network: Architecture, size: int) -> tuple[Architecture, Sequence[Morph]]:
    """Enlarge all kernels from 3 up that are smaller than ``size``; also return the morphs."""
    grown: list[Morph] = []
    for layer in network.layers:
        if layer.kind == "conv" and morphs.KERNELS[0] <= layer.kernel < size:
            grown.append(Morph(kind="kernel", layer=layer.id, kernel=size))
            network = morphs.apply(network, grown[-1])
    return network, grown


def least_kernel(network: Architecture) -> int | None:
    """Return the smallest of all kernels from 3 up; None if there are none."""
    convs = (layer.kernel for layer in network.layers if layer.kind == "conv")
    return min((kernel for kernel in convs if kernel >= morphs.KERNELS[0]), default=None)


def _figures(proposal: Proposal) -> dict[str, float]:
    why = proposal.why
    known = {"mean": why.mean, "std": why.std, "acquisition": why.acquisition}
    numbers = {name: value for name, value in known.items() if value is not None}
    return {"parent_rank": why.parent_rank, "tried": why.tried, **numbers}
