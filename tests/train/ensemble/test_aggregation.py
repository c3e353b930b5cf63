"""The models of an ensemble, combined after training and at each of their evaluations."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from tests.support.trained_runs import HandmadeRun, Note, course
from tests.support.trained_runs import job as a_job
from vflops.record.folder import RunFolder
from vflops.record.formats.job import DataFacts, JobRecord
from vflops.record.formats.job_events import EnsembleEvaluation, EvaluationPredicted, Predicted
from vflops.train.ensemble.aggregation import delete_interim_predictions, evaluate_ensemble
from vflops.train.ensemble.evaluation_points import evaluation_folder
from vflops.train.ensemble.predictions import prediction_files, write_predictions
from vflops.workloads.image_classification.settings import tiny

SAMPLES, CLASSES = 40, 4
LABELS = np.arange(SAMPLES) % CLASSES
DATA = DataFacts(
    path="/data",
    synthetic=True,
    fingerprint="0" * 64,
    train=1000,
    validation=SAMPLES,
    facts={"classes": CLASSES},
)

Predictions = Mapping[int, np.ndarray]
"""A model's predictions by the step of its evaluation."""


def predictions(model: int, *steps: int) -> Predictions:
    """Return random probabilities, which are better after more steps."""
    random = np.random.default_rng(model)
    by_step = {}
    for step in steps:
        scores = random.random((SAMPLES, CLASSES)) + 0.02 * step * np.eye(CLASSES)[LABELS]
        by_step[step] = (scores / scores.sum(1, keepdims=True)).astype(np.float32)
    return by_step


def accuracy(*tables: np.ndarray) -> float:
    return float((np.mean(tables, axis=0).argmax(1) == LABELS).mean())


def record(model: int, **bag: object) -> JobRecord:
    bagged = {"model": model, "models": 2, "bootstrap": "poisson", "seed": 1, **bag}
    settings = tiny().model_dump(mode="json")
    return a_job(1 + model, repeat=0, ranks=1, bag=bagged, data=DATA, settings=settings)


def write_attempt(
    run: HandmadeRun, job: int, stored: Predictions, *, first_step: int = 0, ends: bool = True
) -> Path:
    """Write an attempt that evaluates and stores its predictions; the last ones again at its end.

    Without ``ends``, it dies after its last evaluation.
    """
    number = run.folder.next_attempt(job)
    temporary = run.folder.path.parent / f"{job}-{number}"
    qualities = [accuracy(table) for table in stored.values()]
    notes: list[Note] = []
    for kind, data in course(*qualities, first_step=first_step):
        if kind == "evaluation":
            folder = evaluation_folder(temporary, data["step"])
            notes.append(_stored(folder, stored[data["step"]], data["step"]))
        notes.append((kind, data))
    if ends:
        notes.insert(-1, _stored(temporary, stored[max(stored)], None))
    else:
        notes = notes[:-2]  # neither finished nor ended
    attempt = run.attempt(job, 1000.0 + 100 * number, *notes)
    shutil.copytree(temporary, attempt, dirs_exist_ok=True)
    return attempt


def _stored(folder: Path, table: np.ndarray, step: int | None) -> Note:
    folder.mkdir(parents=True, exist_ok=True)
    write_predictions(folder, 0, np.arange(SAMPLES), table, [LABELS])
    facts = {"samples": SAMPLES, "files": prediction_files(folder)}
    if step is None:
        return "predictions", Predicted.model_validate(facts).model_dump(mode="json")
    stored = EvaluationPredicted.model_validate({**facts, "step": step})
    return "evaluation-predictions", stored.model_dump(mode="json")


def combined(run: HandmadeRun, *records: JobRecord) -> tuple[EnsembleEvaluation, ...]:
    folder = RunFolder.open(run.folder.path)
    ensemble = evaluate_ensemble(folder, folder.history(), records)
    assert ensemble is not None
    assert ensemble.evaluations[-1].quality == ensemble.sizes[-1].quality
    return ensemble.evaluations


def test_models_are_combined_at_each_of_their_evaluations(handmade_run: HandmadeRun) -> None:
    records = [record(0), record(1)]
    handmade_run.plan(*records)
    first, second = predictions(1, 10, 20, 30), predictions(2, 10, 20, 30)
    write_attempt(handmade_run, 1, first)
    write_attempt(handmade_run, 2, second)
    found = combined(handmade_run, *records)
    assert [(point.step, point.epoch) for point in found] == [(10, 1.0), (20, 2.0), (30, 3.0)]
    expected = [accuracy(first[step], second[step]) for step in (10, 20, 30)]
    assert [point.quality for point in found] == pytest.approx(expected)
    assert len(set(expected)) == 3  # else this test would see no difference


def test_a_model_that_ended_earlier_takes_part_with_its_last_predictions(
    handmade_run: HandmadeRun,
) -> None:
    records = [record(0), record(1)]
    handmade_run.plan(*records)
    first, second = predictions(1, 10, 20, 30), predictions(2, 10, 20)
    write_attempt(handmade_run, 1, first)
    write_attempt(handmade_run, 2, second)
    found = combined(handmade_run, *records)
    expected = [
        accuracy(first[10], second[10]),
        accuracy(first[20], second[20]),
        accuracy(first[30], second[20]),
    ]
    assert [point.quality for point in found] == pytest.approx(expected)
    assert [point.step for point in found] == [10, 20, 30]


def test_an_evaluation_that_was_lost_with_its_attempt_is_not_combined(
    handmade_run: HandmadeRun,
) -> None:
    """Killed after step 20 with a checkpoint of step 10: the second attempt counts from there."""
    records = [record(0), record(1)]
    handmade_run.plan(*records)
    lost, again, second = predictions(7, 10, 20), predictions(1, 20, 30), predictions(2, 10, 20, 30)
    write_attempt(handmade_run, 1, lost, ends=False)
    write_attempt(handmade_run, 1, again, first_step=10)
    write_attempt(handmade_run, 2, second)
    found = combined(handmade_run, *records)
    expected = [
        accuracy(lost[10], second[10]),
        accuracy(again[20], second[20]),
        accuracy(again[30], second[30]),
    ]
    assert [point.quality for point in found] == pytest.approx(expected)


def test_a_step_without_predictions_of_every_model_is_left_out(handmade_run: HandmadeRun) -> None:
    records = [record(0), record(1)]
    handmade_run.plan(*records)
    first, second = predictions(1, 10, 20, 30), predictions(2, 10, 20, 30)
    write_attempt(handmade_run, 1, first)
    notes = course(0.5, 0.5, 0.5)[:-1]
    end = handmade_run.folder.path.parent / "end"
    attempt = handmade_run.attempt(2, 1000.0, *notes, _stored(end, second[30], None), ("end", {}))
    shutil.copytree(end, attempt, dirs_exist_ok=True)
    assert [point.step for point in combined(handmade_run, *records)] == [30]


def test_one_twin_of_a_pair_is_combined(handmade_run: HandmadeRun) -> None:
    records = [record(0, twins=True), record(1, twins=True)]
    handmade_run.plan(*records)
    stored = predictions(1, 10, 20)
    write_attempt(handmade_run, 1, stored)
    write_attempt(handmade_run, 2, predictions(2, 10, 20))
    qualities = [point.quality for point in combined(handmade_run, *records)]
    assert qualities == pytest.approx([accuracy(stored[10]), accuracy(stored[20])])


def test_predictions_during_training_are_deleted_and_those_after_it_kept(
    handmade_run: HandmadeRun,
) -> None:
    handmade_run.plan(record(0))
    attempt = write_attempt(handmade_run, 1, predictions(1, 10, 20))
    assert evaluation_folder(attempt, 10).is_dir()
    delete_interim_predictions(handmade_run.folder, [record(0)])
    assert not evaluation_folder(attempt, 10).parent.exists()
    assert prediction_files(attempt)
