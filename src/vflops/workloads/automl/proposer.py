"""Proposes the next candidate of a worker: an architecture and how to train it."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from vflops.record.formats.job import DataFacts
from vflops.workloads.automl.architecture import morphs
from vflops.workloads.automl.architecture.layer_graph import Architecture
from vflops.workloads.automl.architecture.morphs import Limits, Morph
from vflops.workloads.automl.architecture.starting_networks import resnet
from vflops.workloads.automl.architecture.step_memory import StepMemory
from vflops.workloads.automl.search import rounds
from vflops.workloads.automl.search.distance_processes import DistancesTo, distances_to
from vflops.workloads.automl.search.evolution import RandomSearch
from vflops.workloads.automl.search.searcher import Proposal, Trial
from vflops.workloads.automl.search.searchers import searcher
from vflops.workloads.automl.search.tuning import Setting, Space, TuningResult, suggest
from vflops.workloads.automl.search_events import Candidate, Hyperparameters, Turn
from vflops.workloads.automl.settings import AutomlSettings
from vflops.workloads.automl.turns import KnownResults

_FIRST = "first"
"""The parent name of candidates derived from the untrained starting network."""


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
    """A function that returns the earlier proposal of a turn."""
    distances: DistancesTo = distances_to
    """How the distances of architectures are computed."""
    memory: StepMemory | None = None
    """The memory of a step; None if it is not known."""

    def propose(self, turn: Turn, known: KnownResults) -> Candidate:
        """Return the candidate of a turn."""
        began_s = time.monotonic()
        rng = random.Random(f"{self.seed} {turn.name}")  # the same numbers on every machine
        chosen = self._first(turn) or self._search(known, rng)
        hyper, tuned = self._hyperparameters(chosen.architecture, turn, known, rng)
        chosen, hyper = self._grow_kernels(chosen, hyper, known)
        max_epochs = self.settings.train.epochs
        return Candidate(
            turn=turn,
            architecture=chosen.architecture,
            parent=None if chosen.parent == _FIRST else chosen.parent,
            morphs=chosen.morphs,
            hyper=hyper,
            tuned=tuned,
            epochs=rounds.epochs(turn.round, max_epochs),
            patience=rounds.patience_evaluations(
                turn.round, max_epochs, self.settings.train.evaluate_every
            ),
            known=len(known.results),
            known_sha256=known.sha256,
            took_s=round(time.monotonic() - began_s, 6),
            figures=chosen.figures,
        )

    def _first(self, turn: Turn) -> _DerivedArchitecture | None:
        """Return the starting network for the very first turn, and None for all others."""
        return (
            _DerivedArchitecture(self.first, _FIRST, ())
            if turn == Turn(round=0, worker=0)
            else None
        )

    def _search(self, known: KnownResults, rng: random.Random) -> _DerivedArchitecture:
        pending = [self.candidate(turn).architecture.digest for turn in known.proposed]
        trials = self._trials(known)
        if trials:
            method = searcher(self.settings.search.searcher, self.distances)
        else:  # no results yet: a random step from the starting network
            trials, method = [Trial(_FIRST, self.first, 0.0)], RandomSearch()
        proposal = method.propose(trials, rng, self._limits, pending=pending)
        return _DerivedArchitecture(
            proposal.architecture, proposal.parent, proposal.morphs, _figures(proposal)
        )

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

    def _hyperparameters(
        self, network: Architecture, turn: Turn, known: KnownResults, rng: random.Random
    ) -> tuple[Hyperparameters, bool]:
        """Return the hyperparameters and whether they are tuned, which begins in a later round.

        The batch is one with which the network fits the memory: before tuning that of the workload
        or the largest smaller one.
        """
        settings, batch = self.settings, self.settings.train.batch
        if turn.round + 1 < settings.search.tune_from:
            smaller = [number for number in settings.batches if number < batch]
            return Hyperparameters(batch=self._fitting(network, (*smaller, batch))[-1]), False
        batches = self._fitting(network, settings.batches)
        space = Space(tuple(batches), tuple(sorted(settings.search.kernels)))
        suggested = suggest(space, self._tuning_results(turn, known), rng.getrandbits(32))
        return Hyperparameters(batch=suggested.batch, kernel=suggested.kernel), True

    def _fitting(self, network: Architecture, batches: Sequence[int]) -> list[int]:
        """Return the batches that the limits and the memory allow, or else the smallest one."""
        return [batch for batch in batches if self._suits(network, batch)] or [min(batches)]

    def _suits(self, network: Architecture, batch: int) -> bool:
        """Whether a network with this batch is within the limits and fits the memory of a rank."""
        limits = limits_of(self.settings, batch)
        if self.memory is not None:
            limits = limits.model_copy(update={"step": self.memory, "least_batch": limits.batch})
        return morphs.is_within_limits(network, limits)

    @cached_property
    def _limits(self) -> Limits:
        """The limits of every network; it must fit the memory with the smallest batch.

        If not even the starting network does, its steps will tell.
        """
        limits = limits_of(self.settings)
        least = limits_of(self.settings, min(self.settings.batches)).batch
        memory = self.memory
        if memory is None or not memory.fits(self.first, least, limits.bytes_per_value):
            return limits
        return limits.model_copy(update={"step": memory, "least_batch": least})

    def _tuning_results(self, turn: Turn, known: KnownResults) -> list[TuningResult]:
        """Return the results that hyperparameters are tuned from: of all workers, or of its own.

        Results without a kernel size were not tuned, and were trained for fewer epochs.
        """
        pooled = self.settings.search.tuning == "pooled"
        found = []
        for result in known.results:
            if not pooled and result.turn.worker != turn.worker:
                continue
            if result.trained is not None:
                hyper, accuracy = result.trained.hyper, result.trained.accuracy
            elif result.out_of_memory:
                hyper, accuracy = self.candidate(result.turn).hyper, None
            else:
                continue
            if hyper.kernel is not None:
                found.append(TuningResult(Setting(hyper.batch, hyper.kernel), accuracy))
        return found

    def _grow_kernels(
        self, chosen: _DerivedArchitecture, hyper: Hyperparameters, known: KnownResults
    ) -> tuple[_DerivedArchitecture, Hyperparameters]:
        """Enlarge the kernels to the tuned size, if the result is within the limits and new.

        The returned kernel size is the actual one: kernels never shrink, so it may be larger than
        suggested.
        """
        if hyper.kernel is None:
            return chosen, hyper
        kernel = hyper.kernel
        network, kernel_morphs = grow_kernels(chosen.architecture, kernel)
        earlier_candidates = [self.candidate(turn) for turn in known.proposed]
        is_new = all(
            (earlier.architecture.digest, earlier.hyper.batch) != (network.digest, hyper.batch)
            for earlier in earlier_candidates
        )
        if not kernel_morphs or (is_new and self._suits(network, hyper.batch)):
            chosen = replace(chosen, architecture=network, morphs=(*chosen.morphs, *kernel_morphs))
        return chosen, Hyperparameters(
            batch=hyper.batch, kernel=smallest_kernel(chosen.architecture)
        )


@dataclass(frozen=True)
class _DerivedArchitecture:
    """An architecture and how it was derived."""

    architecture: Architecture
    parent: str
    morphs: tuple[Morph, ...]
    figures: dict[str, float] = field(default_factory=dict)


def grow_kernels(network: Architecture, size: int) -> tuple[Architecture, Sequence[Morph]]:
    """Enlarge all kernels from 3 to below ``size``; return the network and the morphs."""
    kernel_morphs: list[Morph] = []
    for layer in network.layers:
        if layer.kind == "conv" and morphs.KERNELS[0] <= layer.kernel < size:
            kernel_morphs.append(Morph(kind="kernel", layer=layer.id, kernel=size))
            network = morphs.apply(network, kernel_morphs[-1])
    return network, kernel_morphs


def smallest_kernel(network: Architecture) -> int | None:
    """Return the smallest kernel size of at least 3; None if there is none."""
    convs = (layer.kernel for layer in network.layers if layer.kind == "conv")
    return min((kernel for kernel in convs if kernel >= morphs.KERNELS[0]), default=None)


def _figures(proposal: Proposal) -> dict[str, float]:
    why = proposal.why
    predictions = {"mean": why.mean, "std": why.std, "acquisition": why.acquisition}
    known_predictions = {name: value for name, value in predictions.items() if value is not None}
    return {"parent_rank": why.parent_rank, "tried": why.tried, **known_predictions}
