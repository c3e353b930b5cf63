"""The networks of candidates, with the weights that they start from; the next one ahead of time."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import torch
from torch import nn

from vflops.automl.architecture.build import build
from vflops.automl.architecture.morphs import apply
from vflops.automl.architecture.transfer import transfer
from vflops.automl.buffer import Buffer
from vflops.automl.ledger import Ledger
from vflops.automl.record import Candidate, Turn
from vflops.automl.weights import WeightStore
from vflops.data.sampler import mix

_LOOK_S = 0.05


@dataclass(frozen=True)
class Builder:
    """Builds candidates on the host; the same weights for the same candidate, on every rank."""

    buffer: Buffer
    ledger: Ledger
    weights: WeightStore
    seed: int
    inherit: bool

    def candidate(self, turn: Turn) -> Candidate:
        """As it was proposed; on a shared file system it may come into sight late."""
        while (found := self.buffer.get(turn)) is None:
            time.sleep(_LOOK_S)
        return found

    def inherits(self, candidate: Candidate) -> bool:
        """Whether it starts from its parent's weights: it has a parent, and they are kept."""
        return self.inherit and candidate.parent is not None and self.weights.has(candidate.parent)

    def network(self, candidate: Candidate) -> nn.Module:
        """The network, as its training begins with it."""
        turn = candidate.turn
        # Streams of their own: training draws from torch's global one at the same time.
        generator = torch.Generator().manual_seed(mix(self.seed, 3, turn.round, turn.worker) >> 1)
        if not self.inherits(candidate):
            return build(candidate.architecture, generator)
        assert candidate.parent is not None
        self.ledger.read()
        result = self.ledger.results[candidate.parent].trained
        architecture = self.candidate(Turn.named(candidate.parent)).architecture
        network = build(architecture, generator)
        self.weights.load(candidate.parent, result.weights_sha256 if result else None, network)
        for morph in candidate.morphs:
            child = apply(architecture, morph)
            network = transfer(network, architecture, morph, child, generator)
            architecture = child
        return network


class BuildAhead:
    """Builds the candidate of the next turn while another one trains."""

    def __init__(self, builder: Builder, known: Callable[[Candidate], None]) -> None:
        """``known`` is told the candidate before it is built."""
        self._builder, self._known = builder, known
        self._pool = ThreadPoolExecutor(1, "build")
        self._next: tuple[Turn, Future[nn.Module | None]] | None = None
        self._closed = False

    def begin(self, turn: Turn) -> None:
        """Build the candidate of this turn as soon as there is one."""
        self._next = turn, self._pool.submit(self._build, turn)

    def take(self, turn: Turn) -> nn.Module | None:
        """The network that was begun for this turn; None: none was, or it has no candidate yet."""
        begun, self._next = self._next, None
        if begun is None or begun[0] != turn:
            return None
        return begun[1].result()

    def close(self) -> None:
        """Wait for nothing more."""
        self._closed = True
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _build(self, turn: Turn) -> nn.Module | None:
        while not self._closed:
            candidate = self._builder.buffer.get(turn)
            if candidate is not None:
                self._known(candidate)
                return self._builder.network(candidate)
            time.sleep(_LOOK_S)
        return None
