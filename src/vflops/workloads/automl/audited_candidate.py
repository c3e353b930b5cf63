"""Trains one candidate of a recorded search again, for an audit."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import torch

from vflops.record.folder import RunFolder
from vflops.record.formats.job import SegmentRecord
from vflops.train.context import JobContext
from vflops.train.engine import Engine
from vflops.train.parallel.factory import ParallelPlan
from vflops.train.precision import Precision
from vflops.workloads.automl.candidate import CandidateContext, CandidateTraining, candidate_record
from vflops.workloads.automl.candidate_buffer import CandidateBuffer
from vflops.workloads.automl.network_builder import NetworkBuilder, on_all_ranks
from vflops.workloads.automl.proposer_process import jobs_of
from vflops.workloads.automl.search_events import CandidateTrained, Turn
from vflops.workloads.automl.settings import AutomlSettings
from vflops.workloads.automl.shared_results import SharedResults
from vflops.workloads.automl.weights import WeightStore


def train_again(
    context: JobContext,
    segment: SegmentRecord,
    plan: ParallelPlan,
    precision: Precision,
    device: torch.device,
    threads: int,
) -> None:
    """Train the candidate of ``segment`` from the weights that it started from.

    Proposals, results and the weights of its parent are those of the recorded run.
    """
    assert segment.candidate is not None
    run = Path(segment.run)
    recorded = context.record.model_copy(update={"job": segment.job})
    settings = AutomlSettings.model_validate(recorded.settings)
    results = SharedResults(RunFolder.open(run), jobs_of(recorded))
    builder = NetworkBuilder(
        CandidateBuffer(run),
        results,
        WeightStore(run, create=False),
        recorded.seed,
        settings.search.inherit,
    )
    turn = Turn.named(segment.candidate)
    candidate = on_all_ranks(plan, lambda: builder.candidate(turn))
    network = on_all_ranks(plan, lambda: builder.network(candidate))
    results.read()
    result = results.results.get(turn.name)
    epochs = result.trained.epochs if result is not None and result.trained is not None else None
    record = candidate_record(
        context.record,
        candidate.model_copy(update={"end_epoch": epochs}),
        compile=settings.train.compile,
    )
    values = {field.name: getattr(context, field.name) for field in fields(JobContext)}
    values |= {"record": record, "keep_last": False}
    candidate_context = CandidateContext(**values, folder=context.checkpoints / turn.name)
    workload = CandidateTraining(
        AutomlSettings.model_validate(record.settings),
        record.data,
        network,
        candidate.architecture,
    )
    train = AutomlSettings.model_validate(record.settings).train
    engine = Engine.with_torch(candidate_context, train, workload, plan, precision, device)
    context.write_event("job", engine.start_event(threads))
    engine.train()
    weights = engine.backend.weights()
    if weights is None or not segment.is_end:
        return
    sha256 = WeightStore(context.attempt.parents[2]).save(turn.name, weights)
    best = max(candidate_context.evaluations, key=lambda evaluation: evaluation.quality)
    trained = CandidateTrained(
        candidate=turn.name,
        accuracy=best.quality,
        epochs=int(candidate_context.finished_events[-1].epoch),
        reason=candidate_context.finished_events[-1].reason,
        inherited=builder.inherits(candidate),
        hyper=candidate.hyper,
        weights_sha256=sha256,
    )
    context.write_event("candidate-trained", trained)
