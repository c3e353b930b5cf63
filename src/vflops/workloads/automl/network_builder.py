"""The networks of candidates, with the weights that they start from; the next one ahead of time."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from threading import Event
from typing import TypeVar

import torch
from torch import nn

from vflops.data.sampler import mix
from vflops.errors import FolderError
from vflops.train.parallel.factory import ParallelPlan
from vflops.workloads.automl.architecture.module_builder import build
from vflops.workloads.automl.architecture.morphs import apply
from vflops.workloads.automl.architecture.weight_transfer import transfer
from vflops.workloads.automl.backoff import Backoff
from vflops.workloads.automl.candidate import Deadline
from vflops.workloads.automl.candidate_buffer import CandidateBuffer
from vflops.workloads.automl.search_events import Candidate, Turn
from vflops.workloads.automl.shared_results import CandidateResult, SharedResults
from vflops.workloads.automl.weights import WeightStore

Made = TypeVar("Made")

_SEEN_S = 30.0
"""How long a line that another machine wrote may take to come into sight here."""


@dataclass(frozen=True)
class NetworkBuilder:
    """Builds candidates on the host; the same weights for the same candidate, on every rank."""

    buffer: CandidateBuffer
    ledger: SharedResults
    weights: WeightStore
    seed: int
    inherit: bool

    def candidate(self, turn: Turn) -> Candidate:
        """As it was proposed; on a shared file system it may come into sight late."""
        pause = Backoff()
        while (found := self.buffer.get(turn)) is None:
            pause.wait()
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
        result = self._result(Turn.named(candidate.parent)).trained
        architecture = self.candidate(Turn.named(candidate.parent)).architecture
        network = build(architecture, generator)
        self.weights.load(candidate.parent, result.weights_sha256 if result else None, network)
        for morph in candidate.morphs:
            child = apply(architecture, morph)
            network = transfer(network, architecture, morph, child, generator)
            architecture = child
        return network

    def _result(self, parent: Turn) -> CandidateResult:
        """What became of a parent: it is known, because the child was proposed for it."""
        pause, end_s = Backoff(), time.monotonic() + _SEEN_S
        self.ledger.read()
        while parent.name not in self.ledger.results:
            if self.ledger.lost(parent) or time.monotonic() > end_s:
                raise FolderError(
                    f"the result of its parent {parent.name} is in no worker's log",
                    hint="vflops check says which line of which log is damaged",
                )
            pause.wait()
            self.ledger.read()
        return self.ledger.results[parent.name]


@dataclass
class _Task:
    """The building of one candidate."""

    turn: Turn
    unwanted: Event = field(default_factory=Event)
    found: Event = field(default_factory=Event)
    """Set when the candidate is there: from then on it takes no longer than building does."""
    network: Future[nn.Module | None] | None = None


class BuildAhead:
    """Builds the candidate of the next turn while another one trains."""

    def __init__(
        self, builder: NetworkBuilder, known: Callable[[Candidate], None], deadline: Deadline
    ) -> None:
        """``known`` is told the candidate before it is built."""
        self._builder, self._known, self._deadline = builder, known, deadline
        self._pool = ThreadPoolExecutor(1, "build")
        self._task: _Task | None = None

    def begin(self, turn: Turn) -> None:
        """Build the candidate of this turn, and no other, as soon as there is one."""
        self._drop()
        self._task = task = _Task(turn)
        task.network = self._pool.submit(self._build, task)

    def take(self, turn: Turn) -> nn.Module | None:
        """The network that was begun for this turn; None: none was, or it is not there in time."""
        task = self._task
        if task is None or task.turn != turn or not task.found.is_set():
            self._drop()
            return None
        self._task = None
        assert task.network is not None
        while not self._deadline.signal:
            if wait([task.network], timeout=1.0).done:
                return task.network.result()
        return None

    def close(self) -> None:
        """Wait for nothing more."""
        self._drop()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _drop(self) -> None:
        if self._task is not None:
            self._task.unwanted.set()
            self._task = None

    def _build(self, task: _Task) -> nn.Module | None:
        pause = Backoff()
        while not task.unwanted.is_set():
            candidate = self._builder.buffer.get(task.turn)
            if candidate is not None:
                task.found.set()
                self._known(candidate)
                return self._builder.network(candidate)
            task.unwanted.wait(pause.next_s)
        return None


class CandidateUnbuildable(FolderError):
    """A candidate that cannot be built, as all ranks know."""


def on_all_ranks(plan: ParallelPlan, make: Callable[[], Made]) -> Made:
    """What every rank makes; where one of them cannot, none goes on."""
    made, fault = None, None
    try:
        made = make()
    except FolderError as error:
        fault = error
    if plan.agree(int(fault is not None)) or made is None:
        raise CandidateUnbuildable(
            fault.message if fault else "another rank cannot build it"
        ) from fault
    return made
