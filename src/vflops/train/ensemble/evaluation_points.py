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
    stored: dict[int, StoredEvaluation] = {}
    last = job.evaluations[-1] if job.evaluations else None
    for timed in job.evaluations:
        attempt, evaluated = job.folders[timed.attempt], timed.evaluated
        if timed is last:
            found = _after_training(job)
        else:
            files = _files_at(job, timed.attempt, evaluated.step)
            found = files and (evaluation_folder(attempt, evaluated.step), files)
        if found:
            stored[evaluated.step] = StoredEvaluation(evaluated.step, evaluated.epoch, *found)
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


def _after_training(job: TrainedJob) -> tuple[Path, tuple[KeptFile, ...]] | None:
    """Return the predictions that the last attempt stored after training."""
    events = [event for event in job.logs[-1].events if event.kind == "predictions"]
    return (job.folders[-1], events[-1].payload(Predicted).files) if events else None


def _files_at(job: TrainedJob, attempt: int, step: int) -> tuple[KeptFile, ...]:
    """Return the files that an attempt stored at the evaluation after ``step``; may be empty."""
    events = (e for e in job.logs[attempt].events if e.kind == "evaluation-predictions")
    found = [payload for e in events if (payload := e.payload(EvaluationPredicted)).step == step]
    return found[-1].files if found else ()
