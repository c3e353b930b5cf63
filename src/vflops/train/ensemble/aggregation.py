"""The quality of an ensemble, from the combined predictions of its models."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from vflops.extensions import import_object
from vflops.record.folder import History, RunFolder
from vflops.record.formats.job import JobRecord
from vflops.record.formats.job_events import (
    Ensembled,
    EnsembleEvaluation,
    EnsembleSize,
    Predicted,
)
from vflops.record.readout.trained_job import TrainedJob
from vflops.train.ensemble.evaluation_points import (
    StoredEvaluation,
    common_points,
    delete_evaluations,
    stored_evaluations,
)
from vflops.train.ensemble.predictions import KeptPredictions
from vflops.workloads.contract.registry import workload

_PIECE_BYTES = 1 << 26
"""Maximum size of the predictions of all models that are in memory at once."""


@dataclass(frozen=True)
class _Member:
    record: JobRecord
    predictions: KeptPredictions


def ensembles(records: Sequence[JobRecord]) -> list[list[JobRecord]]:
    """Return the jobs of each ensemble of a run; there is one ensemble per workload and repeat."""
    groups: dict[tuple[str, int], list[JobRecord]] = {}
    for record in records:
        if record.bag is not None:
            groups.setdefault((record.workload, record.repeat), []).append(record)
    return list(groups.values())


def evaluate_ensemble(
    folder: RunFolder, history: History, records: Sequence[JobRecord]
) -> Ensembled | None:
    """Return the quality of one ensemble; None if none of its jobs finished."""
    started_s = time.monotonic()
    members = _members(folder, history, records)
    if not members:
        return None
    first = members[0].record
    distinct = _distinct_models(members)
    sizes = _ensemble_sizes(len(distinct))
    qualities = _qualities(distinct, sizes)
    jobs = [_trained_job(folder, history, member.record) for member in distinct]
    return Ensembled(
        workload=first.workload,
        repeat=first.repeat,
        planned=len(records),
        jobs=tuple(member.record.job for member in members),
        evaluated=len(members[0].predictions),
        sizes=tuple(
            EnsembleSize(models=models, quality=quality)
            for models, quality in zip(sizes, qualities, strict=True)
        ),
        evaluations=_evaluations(distinct, jobs, qualities[-1]),
        took_s=round(time.monotonic() - started_s, 6),
    )


def final_quality(
    folder: RunFolder, history: History, records: Sequence[JobRecord]
) -> float | None:
    """Return the quality of all trained models combined; None if none of them finished."""
    distinct = _distinct_models(_members(folder, history, records))
    return _qualities(distinct, [len(distinct)])[0] if distinct else None


def _members(folder: RunFolder, history: History, records: Sequence[JobRecord]) -> list[_Member]:
    """Return the models that finished, with their predictions."""
    members: list[_Member] = []
    for record in records:
        predictions = _predictions(folder, history, record)
        if predictions is not None:
            if members:
                predictions = predictions.sharing_arrays(members[0].predictions)
            members.append(_Member(record, predictions))
    return members


def delete_interim_predictions(folder: RunFolder, records: Sequence[JobRecord]) -> None:
    """Delete the predictions that models stored during training, once they are combined."""
    for record in records:
        delete_evaluations(folder.logged_attempts(record.job))


def _trained_job(folder: RunFolder, history: History, record: JobRecord) -> TrainedJob:
    job = record.job
    return TrainedJob(record, tuple(history.jobs[job]), tuple(folder.logged_attempts(job)))


def _evaluations(
    members: Sequence[_Member], jobs: Sequence[TrainedJob], final: float
) -> tuple[EnsembleEvaluation, ...]:
    """Return the quality of all members combined at each of their evaluations.

    At the last one, all of them are trained, and their quality is ``final``.
    """
    points = list(common_points([stored_evaluations(job) for job in jobs]))
    evaluations = []
    for point in points:
        last = max(point, key=lambda evaluation: evaluation.step)
        quality = final if point is points[-1] else _quality_at(members, point)
        evaluations.append(EnsembleEvaluation(step=last.step, epoch=last.epoch, quality=quality))
    return tuple(evaluations)


def _quality_at(members: Sequence[_Member], point: Sequence[StoredEvaluation]) -> float:
    """Return the quality of all members combined, each as it was at its evaluation."""
    then = [
        replace(
            member,
            predictions=KeptPredictions.open(evaluation.folder, evaluation.files).sharing_arrays(
                members[0].predictions
            ),
        )
        for member, evaluation in zip(members, point, strict=True)
    ]
    return _qualities(then, [len(then)])[0]


def _distinct_models(members: Sequence[_Member]) -> list[_Member]:
    """Return only the first member of each pair of twins, so that every model counts once."""
    by_model: dict[int, _Member] = {}
    for member in members:
        bag = member.record.bag
        by_model.setdefault(bag.number if bag else 0, member)
    return list(by_model.values())


def _predictions(folder: RunFolder, history: History, record: JobRecord) -> KeptPredictions | None:
    """Return the predictions of a job; None if it did not finish or stored none."""
    if not history.ended(record.job):
        return None
    written = [e for e in history.jobs[record.job][-1].events if e.kind == "predictions"]
    if not written:
        return None
    attempt = folder.logged_attempts(record.job)[-1]
    return KeptPredictions.open(attempt, written[-1].payload(Predicted).files)


def _qualities(members: Sequence[_Member], sizes: Sequence[int]) -> list[float]:
    """Return the quality of the first ``size`` members combined, for each of ``sizes``."""
    first = members[0]
    samples = len(first.predictions)
    spec = workload(first.record.workload)
    settings = spec.settings.model_validate(first.record.settings)
    combine = import_object(spec.load_code().combined_by(settings, spec))
    code = spec.load_code().create(settings, first.record.data)
    meters = [code.meter(torch.device("cpu")) for _ in sizes]
    step = max(_PIECE_BYTES // (first.predictions.row_bytes * len(members)), 1)
    for start in range(0, samples, step):
        stop = min(start + step, samples)
        rows = [member.predictions.rows(start, stop) for member in members]
        truth = [torch.from_numpy(labels[start:stop]) for labels in first.predictions.truth]
        no_samples = torch.empty(stop - start, 0)  # meters read only the labels
        for models, meter in zip(sizes, meters, strict=True):
            combined = torch.from_numpy(combine(rows[:models]))
            meter.update(combined, (no_samples, *truth), torch.ones(stop - start, dtype=torch.bool))
    return [float(code.quality([meter.summary()])) for meter in meters]


def _ensemble_sizes(models: int) -> list[int]:
    """Return the powers of two below ``models``, and ``models``."""
    doubled = [1 << power for power in range(models.bit_length()) if 1 << power < models]
    return [*doubled, models]
