"""A worker of the search: trains one candidate after the other until its time is up.

``run`` is the runner of the workload: every rank of a worker's job calls it. The first rank takes
candidates from the buffer, where a process beside it proposes them; the others follow.
"""

from __future__ import annotations

import gc
import shutil
import time
from contextlib import nullcontext
from dataclasses import dataclass, field, fields
from pathlib import Path

import torch
from torch import nn

from vflops.errors import FolderError, Interrupted, RunFailed
from vflops.machine.devices import first_line, is_out_of_memory
from vflops.record.folder import RunFolder
from vflops.record.formats.job import Evaluated
from vflops.train.context import JobContext
from vflops.train.engine import Engine
from vflops.train.parallel.factory import ParallelPlan, parallel_plan
from vflops.train.precision import Precision
from vflops.train.rank_device import rank_device, use_threads
from vflops.workloads.automl.candidate import (
    CandidateContext,
    CandidateTraining,
    Deadline,
    candidate_record,
    ops_of_sample,
)
from vflops.workloads.automl.candidate_buffer import Buffer
from vflops.workloads.automl.candidate_source import FixedWork, Offers, Searched
from vflops.workloads.automl.claiming import Taken, Taking
from vflops.workloads.automl.compile_policy import Modes
from vflops.workloads.automl.network_builder import BuildAhead, Builder, Unfit, together
from vflops.workloads.automl.proposer_process import Searching, jobs_of, worker_of
from vflops.workloads.automl.search import learning_curve
from vflops.workloads.automl.search_events import (
    Candidate,
    CandidateBegun,
    CandidateCut,
    CandidateFailed,
    CandidateTrained,
    Turn,
    WorkerBegun,
)
from vflops.workloads.automl.settings import AutomlSettings
from vflops.workloads.automl.shared_results import Ledger
from vflops.workloads.automl.weights import WeightStore
from vflops.workloads.automl.worker_history import Half, Past

_KEEP_AFTER_S = 20.0
"""A candidate that has trained for less is sooner trained again than kept."""


def run(context: JobContext) -> None:
    """Search and train to the end of the worker's time; this rank's part of it."""
    record = context.record
    settings = AutomlSettings.model_validate(record.settings)
    device = rank_device(settings.train.device, context.local_rank)
    threads = use_threads(device, context.local_ranks or record.ranks)
    precision = Precision.named(settings.train.precision, device)
    plan = parallel_plan(context.rank, record.ranks, device, context.store, settings.train)
    try:
        with precision.settings():
            Worker(context, settings, plan, precision, device, threads).run()
    finally:
        plan.close()


@dataclass
class Worker:
    """One rank of a worker."""

    context: JobContext
    settings: AutomlSettings
    plan: ParallelPlan
    precision: Precision
    device: torch.device
    threads: int
    _started: bool = field(default=False, init=False)
    _samples: int = field(default=0, init=False)
    """Of the steps that the candidate has completed, once it has stopped."""

    def __post_init__(self) -> None:
        self.me, self.workers = worker_of(self.context.record)
        run = self.context.attempt.parents[2]
        self.folder = RunFolder.open(run)
        self.buffer, self.weights = Buffer(run), WeightStore(run)
        self.ledger = Ledger(self.folder, jobs_of(self.context.record))
        own = Ledger(self.folder, jobs_of(self.context.record))  # it is read in a thread
        inherit, seed = self.settings.search.inherit, self.context.record.seed
        self.builder = Builder(self.buffer, own, self.weights, seed, inherit)
        past = Past(self.folder.job_history(self.context.record.job))
        left = past.left(self.buffer.claims_of(self.me))
        self.plan.barrier()  # all have read it before the first rank writes on
        for name in past.ended if self.plan.leads else ():  # what died may not have come to it
            shutil.rmtree(self._checkpoints(name), ignore_errors=True)
        spent_s, line = past.spent_s()
        left_s = max(self.settings.search.duration_s - spent_s, 0.0)
        self.deadline = Deadline(self.context.stop, time.monotonic() + left_s)
        train, search = self.settings.train, self.settings.search
        self.modes = Modes(self.context, train, self.plan, self.device, self.deadline)
        knows = self._knows_next
        self._ahead = BuildAhead(self.builder, self.modes.expect, self.deadline) if knows else None
        self.taking = Taking(
            self.context,
            self.plan,
            self.buffer,
            self.deadline,
            self.me,
            left,
            search.turn_s,
            self._clean,
            search.candidates,
            past.rounds,
        )
        began = WorkerBegun(worker=self.me, left_s=left_s, clock=line)
        self.context.write_event("worker", began)

    @property
    def _knows_next(self) -> bool:
        """Whether the next candidate can be built while one trains: the host has time for it."""
        fixed = self.settings.search.ledger is not None
        return self.device.type != "cpu" and self.settings.ordered and not fixed

    def run(self) -> None:
        """Candidate after candidate, until the time is up or there is none."""
        offers = self._offers() if self.plan.leads and not self.deadline.passed else None
        try:
            while (taken := self.taking.next(offers)) is not None:
                self._train(taken)
                self.taking.done += 1
        finally:
            if offers is not None:
                offers.close()
            if self._ahead is not None:
                self._ahead.close()
            self.modes.close()

    def _offers(self) -> Offers:
        if self.settings.search.ledger is not None:
            return FixedWork(self.buffer, self.ledger, self.settings.search.turn_s)
        own = self.me if self.settings.ordered else None
        return Searched(Searching(self.context), self.buffer, own)

    def _train(self, taken: Taken) -> None:
        """Train a candidate, and tell what came of it."""
        turn, half = taken.turn, taken.half
        if taken.hopeless:
            tries = half.tries if half is not None else 0
            self._fail(turn, f"{tries} attempts of the worker died over it")
        else:
            self._try(turn, half)
        self._clean(turn.name)

    def _try(self, turn: Turn, half: Half | None) -> None:
        self._samples = 0
        try:
            self._attempt(together(self.plan, lambda: self.builder.candidate(turn)), half)
        except Unfit as error:
            self._fail(turn, error.message)
        except (RunFailed, FolderError, RuntimeError) as error:
            if isinstance(error, RuntimeError) and not is_out_of_memory(error):
                raise
            self._fail(turn, first_line(error))
            if self.plan.ranks > 1:  # the others may be in the middle of it: begin anew
                raise

    def _fail(self, turn: Turn, message: str) -> None:
        """Write down that a candidate cannot be trained."""
        failed = CandidateFailed(candidate=turn.name, message=message, samples=self._samples)
        self.context.write_event("candidate-failed", failed)

    def _attempt(self, candidate: Candidate, half: Half | None) -> None:
        """To the end of its training, or of the worker's time."""
        began_s = time.monotonic()
        context = self._candidate_context(candidate, half)
        engine = self._engine(context, candidate)
        if not self._started:
            self.context.write_event("job", engine.started(self.threads))
            self._started = True
        built_s = time.monotonic() - began_s
        self.context.write_event("candidate", self._begun(candidate, built_s, engine.compiled))
        if self._ahead is not None:
            self._ahead.begin(Turn(round=candidate.turn.round + 1, worker=self.me))
        try:
            with self.modes.learning(candidate, engine) if half is None else nullcontext():
                engine.train()
        except Interrupted:
            if self.plan.agree(int(self.context.stop.signal is not None)):
                raise
            samples = engine.state.step * engine.settings.batch
            cut = CandidateCut(candidate=candidate.turn.name, samples=samples)
            self.context.write_event("candidate-cut", cut)
        else:
            self._trained(candidate, context, engine)
        finally:
            self._samples = engine.state.step * engine.settings.batch

    def _candidate_context(self, candidate: Candidate, half: Half | None) -> CandidateContext:
        """The worker's own with the candidate's record, checkpoints and time."""
        own = {each.name: getattr(self.context, each.name) for each in fields(JobContext)}
        own |= {
            "record": candidate_record(
                self.context.record, candidate, compile=self.modes.chosen(candidate)
            ),
            "stop": self.deadline,
            "keep_last": False,  # its weights are kept for its children
            "keep_after_s": _KEEP_AFTER_S,
            "finished_step": self._finished_step(half),
        }
        context = CandidateContext(**own, folder=self._checkpoints(candidate.turn.name))
        if half is not None:
            context.evaluations.extend(half.evaluations)
            context.ended.extend([half.finished] if half.finished else [])
        return context

    def _finished_step(self, half: Half | None) -> int | None:
        """The last step, where an earlier attempt came to it, as the first rank has read it."""
        finished = half.finished if half is not None and self.plan.leads else None
        agreed = self.plan.agree(1 + finished.step if finished is not None else 0)
        return agreed - 1 if agreed else None

    def _engine(self, context: CandidateContext, candidate: Candidate) -> Engine:
        record = context.record
        settings = AutomlSettings.model_validate(record.settings)
        network = together(self.plan, lambda: self._network(candidate))
        workload = CandidateTraining(settings, record.data, network)
        return Engine(context, settings.train, workload, self.plan, self.precision, self.device)

    def _network(self, candidate: Candidate) -> nn.Module:
        ahead = self._ahead.take(candidate.turn) if self._ahead else None
        return self.builder.network(candidate) if ahead is None else ahead

    def _begun(self, candidate: Candidate, built_s: float, compiled: bool) -> CandidateBegun:
        batch = candidate.hyper.batch // (self.plan.ranks * self.settings.train.accumulate)
        forward, total = ops_of_sample(candidate, batch)
        return CandidateBegun(
            candidate=candidate.turn.name,
            digest=candidate.architecture.digest,
            proposal_sha256=self.buffer.proposal_sha256(candidate.turn),
            parent=candidate.parent,
            inherited=self.builder.inherits(candidate),
            epochs=candidate.epochs,
            batch=candidate.hyper.batch,
            parameters=candidate.architecture.parameters,
            ops_forward=forward,
            ops_total=total,
            waited_s=round(self.taking.waited_s, 6),
            built_s=round(built_s, 6),
            compiled=compiled,
        )

    def _trained(self, candidate: Candidate, context: CandidateContext, engine: Engine) -> None:
        """Keep the weights for children, then tell the result: who reads it finds them."""
        if not self.plan.leads:
            return
        name = candidate.turn.name
        with self.context.clock.phase("checkpointing"):
            sha256 = self.weights.keep(name, engine.state.model)
        best = max(context.evaluations, key=lambda each: each.quality)
        trained = CandidateTrained(
            candidate=name,
            accuracy=best.quality,
            predicted=self._predicted(candidate.turn, context.evaluations),
            epochs=int(context.ended[-1].epoch),
            reason=context.ended[-1].reason,
            inherited=self.builder.inherits(candidate),
            hyper=candidate.hyper,
            weights_sha256=sha256,
        )
        self.context.write_event("candidate-trained", trained)

    def _predicted(self, turn: Turn, evaluations: list[Evaluated]) -> float | None:
        """What a candidate of the warm-up would reach in a whole training."""
        if turn.round + 1 >= self.settings.search.tune_from:
            return None
        points = {max(round(each.epoch), 1): each.quality for each in evaluations}
        return learning_curve.predict(sorted(points.items()), self.settings.train.epochs).value

    def _clean(self, name: str) -> None:
        """Leave nothing of the candidate in memory, and none of its checkpoints."""
        self.context.clock.enter("start-up")
        gc.collect()
        if self.device.type != "cpu":
            torch.accelerator.empty_cache()
        if self.plan.leads and not self.context.stop.signal:
            shutil.rmtree(self._checkpoints(name), ignore_errors=True)

    def _checkpoints(self, name: str) -> Path:
        return self.context.checkpoints / name
