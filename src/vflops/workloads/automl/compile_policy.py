"""Decides whether a candidate's steps are fused, compiled, or only recorded as CUDA graphs.

Fused steps are the fastest and need almost no preparation, but not every network, precision and
device can have them. Otherwise the choice is the one with which training is expected to finish
sooner.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch

from vflops.config.training import Compile, TrainSettings
from vflops.train.backends.torch_backend import fused_dtype
from vflops.train.context import JobContext
from vflops.train.engine import Engine
from vflops.train.parallel.factory import ParallelPlan
from vflops.train.precision import Precision
from vflops.workloads.automl.architecture.fused_network import can_fuse, fuses_on
from vflops.workloads.automl.candidate import Deadline, ops_per_sample
from vflops.workloads.automl.compile_ahead import CompileAhead
from vflops.workloads.automl.search_events import Candidate

_MIN_TRAINING_S = 2.0
"""Training for less time than this says little about speed."""
_YEAR_S = 3.2e7


@dataclass
class CompileCosts:
    """The costs of training on a worker: initially those of an H200, then measured ones."""

    s_per_op: float = 1e-14
    """Seconds per operation without compilation."""
    gain: float = 0.7
    """Time of compiled steps relative to uncompiled ones, until it is measured."""
    compile_s: float = 2.0
    """Seconds to compile one layer, for training and evaluation."""
    load_s: float = 0.3
    """Seconds to load one layer from the cache after another process has compiled it."""
    _compiled_s_per_op: float | None = field(default=None, init=False)

    def uncompiled_s(self, ops: int) -> float:
        """Return the seconds that ``ops`` operations of training take without compilation."""
        return ops * self.s_per_op

    def compiled_s(self, ops: int, layers: int, ahead_s: float | None = None) -> float:
        """Return the seconds that compiled training takes, including compilation.

        ``ahead_s`` is how long another process has been compiling; None if none has.
        """
        training_s = ops * (self._compiled_s_per_op or self.gain * self.s_per_op)
        if ahead_s is None:
            return layers * self.compile_s + training_s
        return max(layers * self.compile_s - ahead_s, 0.0) + layers * self.load_s + training_s

    def compiling_pays(
        self, ops: int, layers: int, ahead_s: float | None = None, left_s: float = math.inf
    ) -> bool:
        """Whether training finishes sooner if it is compiled.

        If ``left_s`` is too short to finish, only the part that fits is compared.
        """
        ops = min(ops, int(min(left_s, _YEAR_S) / self.s_per_op))
        return self.compiled_s(ops, layers, ahead_s) < self.uncompiled_s(ops)

    def update(self, ops: int, training_s: float, *, compiled: bool) -> None:
        """Update the costs from the measured time of ``ops`` operations of training."""
        if training_s < _MIN_TRAINING_S:
            return
        if compiled:
            self._compiled_s_per_op = training_s / ops
        else:
            self.s_per_op = training_s / ops


class CompilePolicy:
    """Decides for one candidate after the other, and learns from their training times.

    Deterministic searches are never compiled: the decision depends on measured times, so that a
    repeated search could decide differently.
    """

    def __init__(
        self,
        context: JobContext,
        train: TrainSettings,
        plan: ParallelPlan,
        precision: Precision,
        device: torch.device,
        deadline: Deadline,
    ) -> None:
        self._context, self._train, self._plan = context, train, plan
        may_fuse = fused_dtype(train, plan, precision, device) is not None
        self._may_fuse = may_fuse and fuses_on(device)
        self._decides = train.compile == "auto" and device.type != "cpu"
        self._costs, self._deadline = CompileCosts(), deadline
        compiles_ahead = device.type == "cuda" and not train.deterministic and self._decides
        self._ahead = CompileAhead(context, device, deadline) if compiles_ahead else None

    def prepare(self, candidate: Candidate) -> None:
        """Start compiling the next candidate if that pays; may be called from any thread."""
        if self._ahead is None or self._fuses(candidate):
            return
        if self._pays(candidate, math.inf):
            self._ahead.begin(candidate.turn)

    def choose(self, candidate: Candidate) -> Compile:
        """Return how a candidate's steps run, the same on all ranks."""
        if not self._decides or self._fuses(candidate):
            return self._train.compile
        turn = candidate.turn
        ahead_s = self._ahead.elapsed_s(turn) if self._ahead is not None else None
        exact = self._train.deterministic
        pays = self._plan.leads and not exact and self._pays(candidate, ahead_s)
        compiles = bool(self._plan.agree(int(pays)))
        if self._ahead is not None:
            with self._context.clock.phase("compilation"):
                self._ahead.finish(turn, wanted=compiles)
        return "on" if compiles else "record"

    @contextmanager
    def measuring(self, candidate: Candidate, engine: Engine) -> Iterator[None]:
        """Measure the speed of training, which the block runs from beginning to end."""
        clock = self._context.clock
        before_s = clock.spent_s()["training"]
        yield
        _, ops = ops_per_sample(candidate, engine.settings.rank_batch)
        samples = engine.state.step * engine.settings.batch
        training_s = clock.spent_s()["training"] - before_s
        self._costs.update(samples * ops, training_s, compiled=engine.backend.compiled)

    def close(self) -> None:
        """Stop compiling ahead."""
        if self._ahead is not None:
            self._ahead.close()

    def _fuses(self, candidate: Candidate) -> bool:
        """Whether the candidate gets a fused step."""
        batch = candidate.hyper.batch // self._train.accumulate
        return self._may_fuse and can_fuse(candidate.architecture, batch)

    def _pays(self, candidate: Candidate, ahead_s: float | None) -> bool:
        """Whether the candidate's training finishes sooner if it is compiled."""
        batch = candidate.hyper.batch // (self._plan.ranks * self._train.accumulate)
        _, ops = ops_per_sample(candidate, batch)
        epochs = min(candidate.end_epoch or candidate.epochs, candidate.epochs)
        layers = sum(layer.kind == "conv" for layer in candidate.architecture.layers)
        samples = epochs * self._context.record.data.train
        left_s = max(self._deadline.end_s - time.monotonic(), 0.0)
        return self._costs.compiling_pays(samples * ops, layers, ahead_s, left_s)
