"""A worker of a search, which trains one candidate after the other until its time is up.

``run`` is the runner of the workload: every rank of a worker's job calls it. The first rank claims
candidates from the buffer, and the other ranks follow. A child process writes proposals to the
buffer.
"""

from __future__ import annotations

import gc
import shutil
import time
from contextlib import nullcontext
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import NoReturn

import torch

from vflops.errors import FolderError, Interrupted, OutOfMemory, RestartNeeded, RunFailed
from vflops.machine.devices import first_line, is_out_of_memory
from vflops.machine.host import free_memory_bytes
from vflops.record.folder import RunFolder
from vflops.record.formats.job_events import Evaluated
from vflops.train.context import JobContext
from vflops.train.data_read import write_data_read
from vflops.train.engine import Engine
from vflops.train.parallel.factory import ParallelPlan, parallel_plan
from vflops.train.precision import Precision
from vflops.train.rank_device import device_memory, rank_device, use_threads
from vflops.train.rank_places import write_memory
from vflops.workloads.automl.architecture.module_builder import Network
from vflops.workloads.automl.audited_candidate import train_again
from vflops.workloads.automl.candidate import (
    CandidateContext,
    CandidateTraining,
    Deadline,
    batch_ops,
    candidate_record,
)
from vflops.workloads.automl.candidate_buffer import CandidateBuffer
from vflops.workloads.automl.candidate_source import CandidateSource, ReplaySource, SearchSource
from vflops.workloads.automl.claiming import CandidateClaimer, ClaimedCandidate
from vflops.workloads.automl.compile_policy import CompilePolicy
from vflops.workloads.automl.convergence import Convergence
from vflops.workloads.automl.failed_candidates import (
    read_failed_candidates,
    write_failed_candidate,
)
from vflops.workloads.automl.network_builder import (
    BuildAhead,
    CandidateUnbuildable,
    NetworkBuilder,
    on_all_ranks,
)
from vflops.workloads.automl.proposer_process import ProposerProcess, jobs_of, worker_of
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
from vflops.workloads.automl.shared_results import SharedResults
from vflops.workloads.automl.weights import WeightStore
from vflops.workloads.automl.worker_history import UnfinishedCandidate, WorkerHistory
from vflops.workloads.image_classification.data import JobImages

_TRIED_ALGORITHMS = 4
"""How many of cuDNN's algorithms are tried for each convolution, the most promising first.

With ten, torch's default, this takes half a minute for a network with large kernels.
"""
_USABLE = 0.9
"""Share of the memory that weights and activations can take; workspaces take the rest."""
_CHECKPOINT_AFTER_S = 20.0
"""A candidate that has trained for less time is not checkpointed."""


def run(context: JobContext) -> None:
    """Search and train until the worker's time is up; every rank calls this."""
    context.stop.set_unsaved_work(False)
    record = context.record
    settings = AutomlSettings.model_validate(record.settings)
    device = rank_device(settings.train.device, context.local_rank)
    threads = use_threads(device, context.local_ranks or record.ranks)
    precision = Precision.named(settings.train.precision, device)
    plan = parallel_plan(context.rank, record.ranks, device, context.store, settings.train)
    torch.backends.cudnn.benchmark_limit = _TRIED_ALGORITHMS
    with precision.settings():
        if record.segment is not None:
            train_again(context, record.segment, plan, precision, device, threads)
        else:
            Worker(context, settings, plan, precision, device, threads).run()
            write_memory(context, plan, device)
    plan.barrier()
    plan.close()  # not after an error, which is written first


def usable_memory(device: torch.device, ranks: int) -> int:
    """Return the memory that each of the ``ranks`` ranks of this node can use."""
    on_cpu = device.type == "cpu"
    available = free_memory_bytes() // ranks if on_cpu else device_memory(device)
    return int(available * _USABLE)


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
    """Samples of the candidate's completed steps, once it has stopped."""

    def __post_init__(self) -> None:
        self.index, _ = worker_of(self.context.record)
        run = self.context.attempt.parents[2]
        self.folder = RunFolder.open(run)
        self.buffer, self.weights = CandidateBuffer(run), WeightStore(run)
        jobs = jobs_of(self.context.record)
        self.shared = SharedResults(self.folder, jobs)
        inherit, seed = self.settings.search.inherit, self.context.record.seed
        builder_results = SharedResults(self.folder, jobs)  # read in the builder's thread
        self.builder = NetworkBuilder(self.buffer, builder_results, self.weights, seed, inherit)
        failed = read_failed_candidates(self.context.attempt.parent)
        history = WorkerHistory(self.folder.job_history(self.context.record.job), failed)
        unfinished = history.open_claims(self.buffer.claims_of(self.index))
        self.plan.barrier()  # all ranks must read the history before the first one extends it
        for name in history.ended if self.plan.leads else ():  # left by an attempt that died
            shutil.rmtree(self._checkpoints(name), ignore_errors=True)
        spent_s, clock_fault = history.spent_s()
        left_s = max(self.settings.search.duration_s - spent_s, 0.0)
        convergence = None
        if self.settings.search.end == "converged":
            due_s = time.monotonic() + self.settings.search.least_s - spent_s
            convergence = Convergence(
                self.folder, jobs, self.index, self.buffer, self.settings, due_s
            )
        self.deadline = Deadline(self.context.stop, time.monotonic() + left_s, convergence)
        train, search = self.settings.train, self.settings.search
        self.compile_policy = CompilePolicy(
            self.context, train, self.plan, self.precision, self.device, self.deadline
        )
        self._ahead = (
            BuildAhead(self.builder, self.compile_policy.prepare, self.deadline)
            if self._can_build_ahead
            else None
        )
        self.claimer = CandidateClaimer(
            self.context,
            self.plan,
            self.buffer,
            self.deadline,
            self.index,
            unfinished,
            search.turn_s,
            self._clean,
            search.candidates,
            convergence,
            len(history.ended),
        )
        self.images = JobImages(self.context.record.data)  # candidates share what was compared
        self.memory_bytes = history.memory_bytes or usable_memory(
            self.device, self.context.local_ranks or self.context.record.ranks
        )
        began = WorkerBegun(
            worker=self.index, left_s=left_s, clock=clock_fault, memory_bytes=self.memory_bytes
        )
        self.context.write_event("worker", began)
        for failure in history.unrecorded:  # on a rank that could not write to the log
            self.context.write_event("candidate-failed", failure)

    @property
    def _can_build_ahead(self) -> bool:
        """Whether to build the next candidate in advance: its turn is known, the host is idle."""
        replay = self.settings.search.ledger is not None
        return self.device.type != "cpu" and self.settings.ordered and not replay

    def run(self) -> None:
        """Train candidates until the time is up or there are no more."""
        source = self._source() if self.plan.leads and not self.deadline.passed else None
        try:
            while (claimed := self.claimer.next(source)) is not None:
                self._train(claimed)
                self.claimer.done += 1
            write_data_read(self.context, self.plan, self.images.read_splits())
        finally:
            if source is not None:
                source.close()
            if self._ahead is not None:
                self._ahead.close()
            self.compile_policy.close()

    def _source(self) -> CandidateSource:
        if self.settings.search.ledger is not None:
            return ReplaySource(self.buffer, self.shared, self.settings.search.turn_s)
        worker = self.index if self.settings.own_proposals else None
        proposer = ProposerProcess(self.context, self.memory_bytes)
        return SearchSource(proposer, self.buffer, worker)

    def _train(self, claimed: ClaimedCandidate) -> None:
        """Train a candidate, and write its outcome."""
        turn, unfinished = claimed.turn, claimed.unfinished
        if claimed.hopeless:
            tries = unfinished.tries if unfinished is not None else 0
            self._fail(turn, f"{tries} attempts of the worker died while training it")
        else:
            self._train_or_fail(turn, unfinished)
        self.context.stop.set_unsaved_work(False)
        self._clean(turn.name)

    def _train_or_fail(self, turn: Turn, unfinished: UnfinishedCandidate | None) -> None:
        self._samples = 0
        try:
            candidate = on_all_ranks(self.plan, lambda: self.builder.candidate(turn))
            self._attempt(candidate, unfinished)
        except CandidateUnbuildable as error:
            self._fail(turn, error.message)
        except (RunFailed, FolderError, RuntimeError) as error:
            too_large = isinstance(error, OutOfMemory)
            if isinstance(error, RuntimeError):
                too_large = is_out_of_memory(error)
                if not too_large:
                    raise
            message = first_line(error)
            if self.plan.ranks == 1:
                self._fail(turn, message, out_of_memory=too_large)
            else:  # others may be within a step, in a collective operation that never completes
                self._restart_without(turn, message, out_of_memory=too_large)

    def _fail(self, turn: Turn, message: str, *, out_of_memory: bool = False) -> CandidateFailed:
        """Report that a candidate cannot be trained."""
        failed = CandidateFailed(
            candidate=turn.name,
            message=message,
            samples=self._samples,
            out_of_memory=out_of_memory,
        )
        self.context.write_event("candidate-failed", failed)
        return failed

    def _restart_without(self, turn: Turn, message: str, *, out_of_memory: bool) -> NoReturn:
        """Leave the candidate's failure to the next attempt, and raise ``RestartNeeded``."""
        failed = self._fail(
            turn, f"rank {self.context.rank}: {message}", out_of_memory=out_of_memory
        )
        write_failed_candidate(self.context.attempt, self.context.rank, failed)
        raise RestartNeeded(f"{turn.name} cannot be trained: {message}")

    def _attempt(self, candidate: Candidate, unfinished: UnfinishedCandidate | None) -> None:
        """Train until the candidate is finished or the worker's time is up."""
        began_s = time.monotonic()
        context = self._candidate_context(candidate, unfinished)
        engine = self._engine(context, candidate)
        if not self._started:
            self.context.write_event("job", engine.start_event(self.threads))
            self._started = True
        built_s = time.monotonic() - began_s
        begun = self._begun(candidate, built_s, engine.backend.compiled)
        self.context.write_event("candidate", begun)
        if self._ahead is not None:
            self._ahead.begin(Turn(round=candidate.turn.round + 1, worker=self.index))
        try:
            from_start = unfinished is None
            with self.compile_policy.measuring(candidate, engine) if from_start else nullcontext():
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

    def _candidate_context(
        self, candidate: Candidate, unfinished: UnfinishedCandidate | None
    ) -> CandidateContext:
        """Return the worker's context with the candidate's record, checkpoints and deadline."""
        values = {
            attribute.name: getattr(self.context, attribute.name)
            for attribute in fields(JobContext)
        }
        values |= {
            "record": candidate_record(
                self.context.record, candidate, compile=self.compile_policy.choose(candidate)
            ),
            "stop": self.deadline,
            "keep_last": False,  # the weights are stored for its children instead
            "keep_after_s": _CHECKPOINT_AFTER_S,
            "finished_step": self._finished_step(unfinished),
        }
        context = CandidateContext(**values, folder=self._checkpoints(candidate.turn.name))
        if unfinished is not None:
            context.evaluations.extend(unfinished.evaluations)
            context.finished_events.extend([unfinished.finished] if unfinished.finished else [])
        return context

    def _finished_step(self, unfinished: UnfinishedCandidate | None) -> int | None:
        """Return the last step if an earlier attempt reached it, according to the first rank."""
        finished = unfinished.finished if unfinished is not None and self.plan.leads else None
        agreed = self.plan.agree(1 + finished.step if finished is not None else 0)
        return agreed - 1 if agreed else None

    def _engine(self, context: CandidateContext, candidate: Candidate) -> Engine:
        record = context.record
        settings = AutomlSettings.model_validate(record.settings)
        network = on_all_ranks(self.plan, lambda: self._network(candidate))
        workload = CandidateTraining(
            settings, record.data, network, candidate.architecture, self.images
        )
        return Engine.with_torch(
            context, settings.train, workload, self.plan, self.precision, self.device
        )

    def _network(self, candidate: Candidate) -> Network:
        ahead = self._ahead.take(candidate.turn) if self._ahead else None
        return self.builder.network(candidate) if ahead is None else ahead

    def _begun(self, candidate: Candidate, built_s: float, compiled: bool) -> CandidateBegun:
        batch = candidate.hyper.batch // (self.plan.ranks * self.settings.train.accumulate)
        ops = batch_ops(candidate, batch)
        return CandidateBegun(
            candidate=candidate.turn.name,
            digest=candidate.architecture.digest,
            proposal_sha256=self.buffer.proposal_sha256(candidate.turn),
            parent=candidate.parent,
            inherited=self.builder.inherits(candidate),
            epochs=candidate.epochs,
            batch=candidate.hyper.batch,
            parameters=candidate.architecture.parameters,
            ops_forward=ops.forward // batch,
            ops_total=ops.total // batch,
            batch_ops=ops,
            waited_s=round(self.claimer.waited_s, 6),
            built_s=round(built_s, 6),
            compiled=compiled,
        )

    def _trained(self, candidate: Candidate, context: CandidateContext, engine: Engine) -> None:
        """Store the weights before writing the result, so that its readers find the weights."""
        weights = engine.backend.weights()
        if weights is None:
            return
        name = candidate.turn.name
        with self.context.clock.phase("checkpointing"):
            sha256 = self.weights.save(name, weights)
        best = max(context.evaluations, key=lambda evaluation: evaluation.quality)
        trained = CandidateTrained(
            candidate=name,
            accuracy=best.quality,
            predicted=self._predicted(candidate.turn, context.evaluations),
            epochs=int(context.finished_events[-1].epoch),
            reason=context.finished_events[-1].reason,
            inherited=self.builder.inherits(candidate),
            hyper=candidate.hyper,
            weights_sha256=sha256,
        )
        self.context.write_event("candidate-trained", trained)

    def _predicted(self, turn: Turn, evaluations: list[Evaluated]) -> float | None:
        """Return the accuracy predicted for full training in a warm-up round, otherwise None."""
        if turn.round + 1 >= self.settings.search.tune_from:
            return None
        points = {max(round(point.epoch), 1): point.quality for point in evaluations}
        return learning_curve.predict(sorted(points.items()), self.settings.train.epochs).value

    def _clean(self, name: str) -> None:
        """Free the memory of a candidate, and delete its checkpoints."""
        self.context.clock.enter("start-up")
        gc.collect()
        if self.device.type != "cpu":
            torch.accelerator.empty_cache()
        if self.plan.leads and not self.context.stop.signal:
            shutil.rmtree(self._checkpoints(name), ignore_errors=True)

    def _checkpoints(self, name: str) -> Path:
        return self.context.checkpoints / name
