"""The next candidate of a worker: an architecture, how it is trained, and what that rests on."""

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
from vflops.workloads.automl.search.tuning import Setting, Space, Tried, suggest
from vflops.workloads.automl.search_events import Candidate, Hyperparameters, Turn
from vflops.workloads.automl.settings import AutomlSettings
from vflops.workloads.automl.turns import KnownResults

_FIRST = "first"
"""Stands for the network that the search starts from, where nothing is trained yet."""


def first_network(settings: AutomlSettings, data: DataFacts) -> Architecture:
    """The network that a search starts from: the workload's ResNet."""
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
    """What no candidate may exceed, trained with ``batch`` or with the workload's own."""
    given = settings.search.limits
    parts = settings.train.ranks * settings.train.accumulate
    return Limits(
        parameters=given.parameters,
        operations_per_sample=given.operations,
        memory_bytes=given.memory_bytes,
        depth=given.depth,
        batch=(batch or settings.train.batch) // parts,
        bytes_per_value=4 if settings.train.precision in ("fp32", "tf32") else 2,
    )


@dataclass(frozen=True)
class Proposer:
    """Proposes candidates; the same for the same turn and the same results before it."""

    settings: AutomlSettings
    seed: int
    first: Architecture
    candidate: Callable[[Turn], Candidate]
    """What was proposed before."""

    def propose(self, turn: Turn, known: KnownResults) -> Candidate:
        """The candidate of a turn."""
        began_s = time.monotonic()
        rng = random.Random(f"{self.seed} {turn.name}")  # a string: the same on every machine
        chosen = self._first(turn) or self._search(known, rng)
        hyper, tuned = self._hyper(turn, known, rng)
        chosen, hyper = self._grown(chosen, hyper, known)
        most = self.settings.train.epochs
        return Candidate(
            turn=turn,
            architecture=chosen.architecture,
            parent=None if chosen.parent == _FIRST else chosen.parent,
            morphs=chosen.morphs,
            hyper=hyper,
            tuned=tuned,
            epochs=rounds.epochs(turn.round, most),
            patience=ceil(rounds.patience(turn.round, most) / self.settings.train.evaluate_every),
            known=len(known.results),
            known_sha256=known.sha256,
            took_s=round(time.monotonic() - began_s, 6),
            figures=chosen.figures,
        )

    def _first(self, turn: Turn) -> _Chosen | None:
        """The very first candidate is the network that the search starts from."""
        return _Chosen(self.first, _FIRST, ()) if turn == Turn(round=0, worker=0) else None

    def _search(self, known: KnownResults, rng: random.Random) -> _Chosen:
        pending = [self.candidate(turn).architecture.digest for turn in known.proposed]
        trials = self._trials(known)
        if trials:
            way = searcher(self.settings.search.searcher)
        else:  # nothing is known of any network: a step from the first one, at random
            trials, way = [Trial(_FIRST, self.first, 0.0)], RandomSearch()
        found = way.propose(trials, rng, limits_of(self.settings), pending=pending)
        return _Chosen(found.architecture, found.parent, found.morphs, _figures(found))

    def _trials(self, known: KnownResults) -> list[Trial]:
        return [
            Trial(
                each.turn.name,
                self.candidate(each.turn).architecture,
                each.trained.counts_for,
            )
            for each in known.results
            if each.trained is not None
        ]

    def _hyper(
        self, turn: Turn, known: KnownResults, rng: random.Random
    ) -> tuple[Hyperparameters, bool]:
        """The workload's own batch in the first rounds; then what tuning suggests."""
        settings = self.settings
        if turn.round + 1 < settings.search.tune_from:
            return Hyperparameters(batch=settings.train.batch), False
        space = Space(settings.batches, tuple(sorted(settings.search.kernels)))
        # Without a kernel size it was not tuned: no choice to learn from, nor trained for as long.
        tried = [
            Tried(Setting(hyper.batch, hyper.kernel), each.trained.accuracy)
            for each in known.results
            if each.trained is not None and (hyper := each.trained.hyper).kernel is not None
        ]
        found = suggest(space, tried, rng.getrandbits(32))
        return Hyperparameters(batch=found.batch, kernel=found.kernel), True

    def _grown(
        self, chosen: _Chosen, hyper: Hyperparameters, known: KnownResults
    ) -> tuple[_Chosen, Hyperparameters]:
        """The network with kernels of the tuned size, if that is within the limits and new.

        A batch that does not fit with it is not taken: the workload's own does. The kernel size is
        told as it then is: kernels never shrink, so it may be larger than was asked for.
        """
        if hyper.kernel is None:
            return chosen, hyper
        kernel = hyper.kernel
        if not morphs.allowed(chosen.architecture, limits_of(self.settings, hyper.batch)):
            hyper = Hyperparameters(batch=self.settings.train.batch, kernel=hyper.kernel)
        network, more = grow_kernels(chosen.architecture, kernel)
        before = [self.candidate(turn) for turn in known.proposed]
        new = all(
            (each.architecture.digest, each.hyper.batch) != (network.digest, hyper.batch)
            for each in before
        )
        limits = limits_of(self.settings, hyper.batch)
        if not more or (new and morphs.allowed(network, limits)):
            chosen = replace(chosen, architecture=network, morphs=(*chosen.morphs, *more))
        return chosen, Hyperparameters(batch=hyper.batch, kernel=least_kernel(chosen.architecture))


@dataclass(frozen=True)
class _Chosen:
    """An architecture, and the way to it."""

    architecture: Architecture
    parent: str
    morphs: tuple[Morph, ...]
    figures: dict[str, float] = field(default_factory=dict)


def grow_kernels(network: Architecture, size: int) -> tuple[Architecture, Sequence[Morph]]:
    """All kernels of 3 and more that are smaller grown to ``size``, and the morphs that do it."""
    grown: list[Morph] = []
    for layer in network.layers:
        if layer.kind == "conv" and morphs.KERNELS[0] <= layer.kernel < size:
            grown.append(Morph(kind="kernel", layer=layer.id, kernel=size))
            network = morphs.apply(network, grown[-1])
    return network, grown


def least_kernel(network: Architecture) -> int | None:
    """What all kernels of 3 and more have at the least; None: there is none of them."""
    convs = (layer.kernel for layer in network.layers if layer.kind == "conv")
    return min((kernel for kernel in convs if kernel >= morphs.KERNELS[0]), default=None)


def _figures(found: Proposal) -> dict[str, float]:
    why = found.why
    known = {"mean": why.mean, "std": why.std, "acquisition": why.acquisition}
    numbers = {name: value for name, value in known.items() if value is not None}
    return {"parent_rank": why.parent_rank, "tried": why.tried, **numbers}
