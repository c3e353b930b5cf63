"""Out-of-bag quality and predictions of a base model, during training and after it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from torch import Tensor

from vflops.config.training import TrainSettings
from vflops.data.bag import evaluated_out_of_bag, out_of_bag_indices
from vflops.metrics.training_time import training_steps
from vflops.record.files import atomic
from vflops.record.formats.job import BagRecord, JobRecord
from vflops.record.formats.job_events import EvaluationPredicted, KeptFile, OutOfBag, Predicted
from vflops.train.context import JobContext
from vflops.train.ensemble.evaluation_points import evaluation_folder
from vflops.train.ensemble.predictions import prediction_files, write_predictions
from vflops.train.evaluation import (
    CollectedPredictions,
    Evaluation,
    LoopEvaluation,
    Outcome,
)
from vflops.train.parallel.rank_group import RankGroup
from vflops.train.state import TrainState
from vflops.workloads.contract.workload import Indices, Split


class TrainedMember(Protocol):
    """The parts of an engine that are needed to evaluate a base model."""

    context: JobContext
    settings: TrainSettings
    state: TrainState
    group: RankGroup

    def evaluation(self, split: Split, indices: Indices | None = None) -> Evaluation:
        """Return the evaluation on a split of the data, or on some of its samples."""


def loop_evaluation(engine: TrainedMember) -> LoopEvaluation:
    """Return the evaluation for the training loop, which stores the predictions of a base model."""
    evaluation = engine.evaluation("validation")
    return MemberEvaluation(engine, evaluation) if engine.context.record.bag else evaluation


class MemberEvaluation:
    """Evaluates a base model during training, and stores its predictions.

    The controller combines the predictions of all models, and deletes them then.
    """

    def __init__(self, engine: TrainedMember, evaluation: Evaluation) -> None:
        self._engine, self._evaluation = engine, evaluation
        self._steps = _combined_steps(engine.context.record, engine.settings)

    def __call__(self, predict: Callable[..., Tensor | None]) -> Outcome:
        """Evaluate the predictions of ``predict``, and store them if they are combined."""
        step = self._engine.state.step
        if step not in self._steps:
            return self._evaluation(predict)
        collected = CollectedPredictions()
        outcome = self._evaluation(predict, collected)
        folder = evaluation_folder(self._engine.context.attempt, step)
        atomic.make_folder(folder)
        files = _write_files(self._engine, collected, folder)
        if self._engine.group.leads:
            stored = EvaluationPredicted(step=step, samples=outcome.evaluated, files=files)
            self._engine.context.write_event("evaluation-predictions", stored)
        return outcome

    def first_batch(self, predict: Callable[..., Tensor | None]) -> None:
        """Predict one batch and discard the result."""
        self._evaluation.first_batch(predict)


def _combined_steps(record: JobRecord, train: TrainSettings) -> set[int]:
    """Return the steps whose evaluations are combined with those of the other models.

    The predictions after training are stored in any case.
    """
    if record.bag is None or not record.bag.combine_every:
        return set()
    every = train.evaluate_every * record.bag.combine_every
    return {
        training_steps(epochs=epoch, samples=record.data.train, batch_size=train.batch)
        for epoch in range(every, train.epochs + 1, every)
    }


def conclude_member(engine: TrainedMember, bag: BagRecord) -> None:
    """Evaluate a base model on its out-of-bag samples, and store its validation predictions."""
    _evaluate_out_of_bag(engine, bag)
    _store_predictions(engine)


def _evaluate_out_of_bag(engine: TrainedMember, bag: BagRecord) -> None:
    size = engine.context.record.data.train
    chosen = evaluated_out_of_bag(bag, size)
    if not len(chosen):
        return
    outcome = engine.state.evaluate(engine.evaluation("train", chosen))
    available = len(out_of_bag_indices(bag, size))
    result = OutOfBag(quality=outcome.quality, evaluated=len(chosen), available=available)
    engine.context.write_event("out-of-bag", result)


def _store_predictions(engine: TrainedMember) -> None:
    collected = CollectedPredictions()
    evaluation = engine.evaluation("validation")
    outcome = engine.state.evaluate(lambda predict: evaluation(predict, collected))
    files = _write_files(engine, collected, engine.context.attempt)
    if engine.group.leads:
        engine.context.write_event("predictions", Predicted(samples=outcome.evaluated, files=files))


def _write_files(
    engine: TrainedMember, collected: CollectedPredictions, folder: Path
) -> tuple[KeptFile, ...]:
    """Write the predictions of all ranks; return the files on the first rank."""
    engine.context.clock.tick()
    if collected.samples:
        positions, predictions, *truth = collected.arrays()
        write_predictions(
            folder, engine.group.rank, positions, predictions, truth, columns=collected.columns
        )
    engine.context.clock.tick()
    engine.group.barrier()  # until every rank has written its files
    return prediction_files(folder) if engine.group.leads else ()
