"""Consistency of an ensemble's evaluations with the logs of its models."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from vflops.record.formats.job_events import Ensembled, EnsembleEvaluation
from vflops.record.readout.trained_job import TrainedJob


def ensemble_evaluation_faults(ensemble: Ensembled, jobs: Sequence[TrainedJob]) -> Iterator[str]:
    """Yield the evaluations of an ensemble that its models, among ``jobs``, did not make.

    The score takes the time to quality from them. Runs of older versions have none.
    """
    numbers = set(ensemble.jobs)
    members = [job for job in jobs if job.record.job in numbers]
    points = ensemble.evaluations
    if not points or not members:
        return
    epochs = [
        {timed.evaluated.step: timed.evaluated.epoch for timed in member.evaluations}
        for member in members
    ]
    for first, second in pairwise(points):
        if second.step <= first.step:
            yield f"combined at step {second.step} after step {first.step}"
    for point in points:
        for member, by_step in zip(members, epochs, strict=True):
            if point.step not in by_step and not 0 <= max(by_step, default=-1) < point.step:
                job = member.record.job
                yield f"combined at step {point.step}, where job {job} has no evaluation"
        if all(by_step.get(point.step, point.epoch) != point.epoch for by_step in epochs):
            yield f"combined at step {point.step}, which does not end epoch {point.epoch:g}"
    yield from _end_faults(points[-1], ensemble, max(max(by_step, default=0) for by_step in epochs))


def _end_faults(last: EnsembleEvaluation, ensemble: Ensembled, end: int) -> Iterator[str]:
    """Yield how the last evaluation differs from the quality after training."""
    if last.step != end:
        yield f"last combined at step {last.step}, but training ended at step {end}"
    if last.quality != ensemble.sizes[-1].quality:
        yield (
            f"of quality {last.quality:g} at its last evaluation, but of "
            f"{ensemble.sizes[-1].quality:g} after training"
        )
