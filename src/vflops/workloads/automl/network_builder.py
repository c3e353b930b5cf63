"""Builds the networks of candidates with their initial weights, if possible ahead of time."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from threading import Event
from typing import TypeVar

import torch

from vflops.data.sampler import mix
from vflops.errors import FolderError
from vflops.train.parallel.factory import ParallelPlan
from vflops.workloads.automl.architecture.module_builder import Network, build
from vflops.workloads.automl.architecture.morphs import apply
from vflops.workloads.automl.architecture.weight_transfer import transfer
from vflops.workloads.automl.backoff import Backoff
from vflops.workloads.automl.candidate import Deadline
from vflops.workloads.automl.candidate_buffer import CandidateBuffer
from vflops.workloads.automl.search_events import Candidate, Turn
from vflops.workloads.automl.shared_results import CandidateResult, SharedResults
from vflops.workloads.automl.weights import WeightStore

Built = TypeVar("Built")

_VISIBLE_S = 30.0
"""How long a line written by another machine may take to become visible here."""


@dataclass(frozen=True)
class NetworkBuilder:
    """Builds candidates on the host, with the same weights on every rank."""

    buffer: CandidateBuffer
    shared: SharedResults
    weights: WeightStore
    seed: int
    inherit: bool

    def candidate(self, turn: Turn) -> Candidate:
        """Return the proposal of a turn; wait until a shared file system shows it."""
        backoff = Backoff()
        while (candidate := self.buffer.get(turn)) is None:
            backoff.wait()
        return candidate

    def inherits(self, candidate: Candidate) -> bool:
        """Whether the candidate starts from its parent's weights, which must have been stored."""
        return self.inherit and candidate.parent is not None and self.weights.has(candidate.parent)

    def network(self, candidate: Candidate) -> Network:
        """Return the network with its initial weights."""
        turn = candidate.turn
        # A separate generator: training uses torch's global one at the same time.
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
        """Return the result of a parent, which the child's proposal was based on."""
        backoff, end_s = Backoff(), time.monotonic() + _VISIBLE_S
        self.shared.read()
        while parent.name not in self.shared.results:
            if self.shared.is_lost(parent) or time.monotonic() > end_s:
                raise FolderError(
                    f"the result of its parent {parent.name} is not in any worker's log",
                    hint="vflops check shows which line of which log is damaged",
                )
            backoff.wait()
            self.shared.read()
        return self.shared.results[parent.name]


@dataclass
class _Task:
    """One candidate being built."""

    turn: Turn
    cancelled: Event = field(default_factory=Event)
    proposed: Event = field(default_factory=Event)
    """Set once the proposal exists and building can begin."""
    network: Future[Network | None] | None = None


class BuildAhead:
    """Builds the candidate of the next turn while another one trains."""

    def __init__(
        self, builder: NetworkBuilder, on_known: Callable[[Candidate], None], deadline: Deadline
    ) -> None:
        """``on_known`` is called with the candidate before it is built."""
        self._builder, self._on_known, self._deadline = builder, on_known, deadline
        self._pool = ThreadPoolExecutor(1, "build")
        self._task: _Task | None = None

    def begin(self, turn: Turn) -> None:
        """Build the candidate of this turn, and no other, as soon as it is proposed."""
        self._drop()
        self._task = task = _Task(turn)
        task.network = self._pool.submit(self._build, task)

    def take(self, turn: Turn) -> Network | None:
        """Return the network of this turn; None if it was not begun or the deadline passes."""
        task = self._task
        if task is None or task.turn != turn or not task.proposed.is_set():
            self._drop()
            return None
        self._task = None
        assert task.network is not None
        while not self._deadline.signal:
            if wait([task.network], timeout=1.0).done:
                return task.network.result()
        return None

    def close(self) -> None:
        """Stop building."""
        self._drop()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _drop(self) -> None:
        if self._task is not None:
            self._task.cancelled.set()
            self._task = None

    def _build(self, task: _Task) -> Network | None:
        backoff = Backoff()
        while not task.cancelled.is_set():
            candidate = self._builder.buffer.get(task.turn)
            if candidate is not None:
                task.proposed.set()
                self._on_known(candidate)
                return self._builder.network(candidate)
            task.cancelled.wait(backoff.next_s)
        return None


class CandidateUnbuildable(FolderError):
    """A candidate cannot be built; raised on all ranks at once."""


def on_all_ranks(plan: ParallelPlan, make: Callable[[], Built]) -> Built:
    """Call ``make`` on every rank; raise ``CandidateUnbuildable`` on all if it fails on one."""
    result, failure = None, None
    try:
        result = make()
    except FolderError as error:
        failure = error
    if plan.agree(int(failure is not None)) or result is None:
        raise CandidateUnbuildable(
            failure.message if failure else "another rank cannot build it"
        ) from failure
    return result
