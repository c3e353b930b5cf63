"""The scale of a training run or an ensemble: HPC AI500 V3.0, equations 3 to 5."""

from __future__ import annotations

from collections.abc import Sequence

from vflops.metrics import system_scale
from vflops.record.readout.trained_job import TrainedJob
from vflops.results.score.score_file import ScaleScore, WorkScore


def scale_score(job: TrainedJob, work: WorkScore | None, *, models: int = 1) -> ScaleScore:
    """Return the scale of ``models`` models like ``job`` that were trained at the same time."""
    started, ranks = job.started, job.record.ranks
    slots = None if started is None else "CPU shares" if started.device == "cpu" else "accelerators"
    return ScaleScore(
        models=models,
        ranks=ranks,
        sys_scale=system_scale(models=models, parallel_degree=ranks),
        slots=slots,
        apc=models * work.batch_ops.of_training(started.batch)
        if work and work.batch_ops and started
        else None,
    )


def models_at_once(spans_s: Sequence[tuple[float, float]]) -> int:
    """Return how many models were trained at the same time at most, from their starts and ends."""
    changes = sorted(
        change for start_s, end_s in spans_s for change in ((start_s, 1), (end_s, -1))
    )  # at the same time, ends come first
    at_once = most = 0
    for _, change in changes:
        at_once += change
        most = max(most, at_once)
    return max(most, 1)
