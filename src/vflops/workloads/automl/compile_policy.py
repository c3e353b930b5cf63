"""How the steps of a candidate run: recorded or compiled, whichever way is over sooner."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from vflops.config.training import Compile, TrainSettings
from vflops.train.context import JobContext
from vflops.train.engine import Engine
from vflops.train.parallel.factory import ParallelPlan
from vflops.workloads.automl.candidate import Deadline, ops_per_sample
from vflops.workloads.automl.compile_ahead import CompileAhead
from vflops.workloads.automl.compile_payoff import CompileCosts
from vflops.workloads.automl.search_events import Candidate


class CompilePolicy:
    """Chooses for one candidate after the other, and learns from each.

    What a clock says would make another search of each: exact ones are never compiled.
    """

    def __init__(
        self,
        context: JobContext,
        train: TrainSettings,
        plan: ParallelPlan,
        device: torch.device,
        deadline: Deadline,
    ) -> None:
        self._context, self._train, self._plan = context, train, plan
        self._chooses = train.compile == "auto" and device.type != "cpu"
        self._pace, self._deadline = CompileCosts(), deadline
        # Another process that compiles has been seen to help where one device makes a worker.
        alone = device.type == "cuda" and plan.ranks == 1 and not train.deterministic
        alone = alone and self._chooses
        self._ahead = CompileAhead(context, device, deadline) if alone else None

    def expect(self, candidate: Candidate) -> None:
        """Compile what trains next, if that pays once it is done; other threads may call it."""
        if self._ahead is not None and self._pays(candidate, math.inf):
            self._ahead.begin(candidate.turn)

    def chosen(self, candidate: Candidate) -> Compile:
        """How it runs, the same on all ranks."""
        if not self._chooses:
            return self._train.compile
        turn = candidate.turn
        ahead_s = self._ahead.taken_s(turn) if self._ahead is not None else None
        exact = self._train.deterministic
        pays = self._plan.leads and not exact and self._pays(candidate, ahead_s)
        compiles = bool(self._plan.agree(int(pays)))
        if self._ahead is not None:
            with self._context.clock.phase("compilation"):
                self._ahead.end(turn, wanted=compiles)
        return "on" if compiles else "record"

    @contextmanager
    def learning(self, candidate: Candidate, engine: Engine) -> Iterator[None]:
        """While a candidate trains from its start to its end: how long its steps take."""
        clock = self._context.clock
        before_s = clock.spent_s()["training"]
        yield
        _, ops = ops_per_sample(candidate, engine.settings.rank_batch)
        samples = engine.state.step * engine.settings.batch
        training_s = clock.spent_s()["training"] - before_s
        self._pace.measured(samples * ops, training_s, compiled=engine.compiled)

    def close(self) -> None:
        """Compile nothing more."""
        if self._ahead is not None:
            self._ahead.close()

    def _pays(self, candidate: Candidate, ahead_s: float | None) -> bool:
        """Whether its training is over sooner if it is compiled."""
        batch = candidate.hyper.batch // (self._plan.ranks * self._train.accumulate)
        _, ops = ops_per_sample(candidate, batch)
        epochs = min(candidate.end_epoch or candidate.epochs, candidate.epochs)
        layers = sum(layer.kind == "conv" for layer in candidate.architecture.layers)
        samples = epochs * self._context.record.data.train
        left_s = max(self._deadline.end_s - time.monotonic(), 0.0)
        return self._pace.compiling_pays(samples * ops, layers, ahead_s, left_s)
