"""What a base model of an ensemble leaves when its training is over: the clock has stopped."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from vflops.record.formats.job import BagRecord
from vflops.record.formats.job_events import OutOfBag, Predicted
from vflops.train.context import JobContext
from vflops.train.ensemble.predictions import keep, kept_files
from vflops.train.ensemble.sample import outside
from vflops.train.evaluation import Evaluation, Kept
from vflops.train.parallel.factory import ParallelPlan
from vflops.train.state import TrainState
from vflops.workloads.contract.workload import Indices, Split


class TrainedMember(Protocol):
    """What is needed of an engine whose training has ended."""

    context: JobContext
    state: TrainState
    plan: ParallelPlan

    def evaluation(self, split: Split, indices: Indices | None = None) -> Evaluation:
        """Return the evaluation on a split of the data, or on some of its samples."""


def conclude_member(engine: TrainedMember, bag: BagRecord) -> None:
    """Judge the model by samples that it has not learned from, and keep what it predicts."""
    _out_of_bag(engine, bag)
    _predictions(engine)


def _out_of_bag(engine: TrainedMember, bag: BagRecord) -> None:
    indices = outside(bag, engine.context.record.data.train)
    if not bag.out_of_bag or not len(indices):
        return
    most = min(bag.out_of_bag, len(indices))
    chosen = indices[np.arange(most) * len(indices) // most]  # spread over all of them
    outcome = engine.state.evaluate(engine.evaluation("train", chosen))
    found = OutOfBag(quality=outcome.quality, evaluated=most, available=len(indices))
    engine.context.write_event("out-of-bag", found)


def _predictions(engine: TrainedMember) -> None:
    kept = Kept()
    evaluation = engine.evaluation("validation")
    outcome = engine.state.evaluate(lambda predict: evaluation(predict, kept))
    place = engine.context.attempt
    if kept.samples:
        places, predictions, *truth = kept.arrays()
        keep(place, engine.plan.rank, places, predictions, truth)
    engine.plan.barrier()  # all files are there
    if engine.plan.leads:
        files = kept_files(place)
        engine.context.write_event("predictions", Predicted(samples=outcome.evaluated, files=files))
