"""The evaluations during training at which the predictions of all base models are combined."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from shutil import rmtree

from vflops.record.formats.job_events import EvaluationPredicted, KeptFile, Predicted
from vflops.record.readout.trained_job import TrainedJob

_FOLDER = "evaluations"


@dataclass(frozen=True)
class StoredEvaluation:
    """The files with a model's predictions at one of its evaluations."""

    step: int
    epoch: float
    folder: Path
    files: tuple[KeptFile, ...]


def evaluation_folder(attempt: Path, step: int) -> Path:
    """Return the folder of the predictions at the evaluation after ``step``."""
    return attempt / _FOLDER / str(step)


def delete_evaluations(attempts: Sequence[Path]) -> None:
    """Delete the predictions during training, once they are combined."""
    for attempt in attempts:
        rmtree(attempt / _FOLDER, ignore_errors=True)


def stored_evaluations(job: TrainedJob) -> dict[int, StoredEvaluation]:
    """Return the evaluations of a trained model that count and have predictions, by step.

    The last one has the predictions after training.
    """
    during = _files_during_training(job)
    stored: dict[int, StoredEvaluation] = {}
    for timed in job.evaluations:
        step, epoch = timed.evaluated.step, timed.evaluated.epoch
        files = during.get((timed.attempt, step))
        if files:
            folder = evaluation_folder(job.folders[timed.attempt], step)
            stored[step] = StoredEvaluation(step, epoch, folder, files)
    after = [event for event in job.logs[-1].events if event.kind == "predictions"]
    if after and job.evaluations:
        last, files = job.evaluations[-1].evaluated, after[-1].payload(Predicted).files
        stored[last.step] = StoredEvaluation(last.step, last.epoch, job.folders[-1], files)
    return stored


def common_points(
    members: Sequence[Mapping[int, StoredEvaluation]],
) -> Iterator[Sequence[StoredEvaluation]]:
    """Yield the evaluations of all members at each step at which all of them have predictions.

    A member whose training ended before a step takes part with its last evaluation.
    """
    ends = [max(member, default=0) for member in members]
    for step in sorted({step for member in members for step in member}):
        point = [member.get(min(step, end)) for member, end in zip(members, ends, strict=True)]
        found = [evaluation for evaluation in point if evaluation is not None]
        if len(found) == len(members):
            yield found


def _files_during_training(job: TrainedJob) -> dict[tuple[int, int], tuple[KeptFile, ...]]:
    """Return the files with predictions by attempt and step."""
    payloads = (
        (attempt, event.payload(EvaluationPredicted))
        for attempt, log in enumerate(job.logs)
        for event in log.events
        if event.kind == "evaluation-predictions"
    )
    return {(attempt, payload.step): payload.files for attempt, payload in payloads}
