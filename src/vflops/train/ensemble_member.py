"""Out-of-bag quality and predictions of a base model, computed after training."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from vflops.record.formats.job import BagRecord
from vflops.record.formats.job_events import OutOfBag, Predicted
from vflops.train.context import JobContext
from vflops.train.ensemble.predictions import prediction_files, write_predictions
from vflops.train.ensemble.sample import out_of_bag_indices
from vflops.train.evaluation import CollectedPredictions, Evaluation
from vflops.train.parallel.factory import ParallelPlan
from vflops.train.state import TrainState
from vflops.workloads.contract.workload import Indices, Split


class TrainedMember(Protocol):
    """The parts of an engine that are needed after training."""

    context: JobContext
    state: TrainState
    plan: ParallelPlan

    def evaluation(self, split: Split, indices: Indices | None = None) -> Evaluation:
        """Return the evaluation on a split of the data, or on some of its samples."""


def conclude_member(engine: TrainedMember, bag: BagRecord) -> None:
    """Evaluate a base model on its out-of-bag samples, and store its validation predictions."""
    _evaluate_out_of_bag(engine, bag)
    _store_predictions(engine)


def _evaluate_out_of_bag(engine: TrainedMember, bag: BagRecord) -> None:
    indices = out_of_bag_indices(bag, engine.context.record.data.train)
    if not bag.out_of_bag or not len(indices):
        return
    count = min(bag.out_of_bag, len(indices))
    chosen = indices[np.arange(count) * len(indices) // count]  # evenly spaced
    outcome = engine.state.evaluate(engine.evaluation("train", chosen))
    result = OutOfBag(quality=outcome.quality, evaluated=count, available=len(indices))
    engine.context.write_event("out-of-bag", result)


def _store_predictions(engine: TrainedMember) -> None:
    collected = CollectedPredictions()
    evaluation = engine.evaluation("validation")
    outcome = engine.state.evaluate(lambda predict: evaluation(predict, collected))
    folder = engine.context.attempt
    if collected.samples:
        positions, predictions, *truth = collected.arrays()
        write_predictions(folder, engine.plan.rank, positions, predictions, truth)
    engine.plan.barrier()  # until every rank has written its files
    if engine.plan.leads:
        files = prediction_files(folder)
        engine.context.write_event("predictions", Predicted(samples=outcome.evaluated, files=files))
