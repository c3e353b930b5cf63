"""Copies of a training: the losses or the qualities of two jobs agree in all digits."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from typing import NamedTuple

from vflops.record.formats.job_events import Evaluated, Progressed
from vflops.record.readout.trained_job import TrainedJob

MIN_LOSSES = 3
"""So many different losses are not equal at the same steps by chance: each has 24 bits or more."""
MIN_QUALITIES, MIN_SAMPLES = 8, 1000
"""Qualities are fractions of the validation set, so some of them are equal if it is small."""
MIN_SHARE = 0.5
"""The share of the steps in both logs that must agree: in thousands of long logs, a few losses of
two jobs are equal by chance."""

_Curve = dict[int, float]
"""A value by step."""


class CopiedCurve(NamedTuple):
    """A job whose curve is that of an earlier job."""

    job: TrainedJob
    original: TrainedJob
    what: str
    """``losses``, ``losses in evaluations`` or ``qualities``."""


def copied_curve(
    jobs: Sequence[TrainedJob], group: Callable[[TrainedJob], Hashable]
) -> CopiedCurve | None:
    """Return the first job that repeats the curve of a job of another group.

    The jobs of one group may be equal: twins have the same data and seed.
    """
    owners: dict[tuple[str, str, int, float], tuple[TrainedJob, _Curve]] = {}
    for job in jobs:
        for what, curve in _curves(job).items():
            equal: dict[int, list[int]] = {}
            originals: dict[int, tuple[TrainedJob, _Curve]] = {}
            for step, value in curve.items():
                key = (job.record.workload, what, step, value)
                original = owners.setdefault(key, (job, curve))
                if group(original[0]) != group(job):
                    equal.setdefault(original[0].record.job, []).append(step)
                    originals[original[0].record.job] = original
            for number, steps in equal.items():
                original_job, original_curve = originals[number]
                common = sum(step in original_curve for step in curve)
                values = {curve[step] for step in steps}
                least = MIN_QUALITIES if what == "qualities" else MIN_LOSSES
                if len(values) >= least and len(steps) >= MIN_SHARE * common:
                    return CopiedCurve(job, original_job, what)
    return None


def _curves(job: TrainedJob) -> dict[str, _Curve]:
    """Return the losses of training and of evaluations, and qualities on many samples."""
    curves: dict[str, _Curve] = {}
    for event in (event for log in job.logs for event in log.events):
        if event.kind == "progress":
            progress = event.payload(Progressed)
            if progress.loss and math.isfinite(progress.loss):
                curves.setdefault("losses", {})[progress.step] = progress.loss
        elif event.kind == "evaluation":
            evaluated = event.payload(Evaluated)
            if evaluated.loss:
                curves.setdefault("losses in evaluations", {})[evaluated.step] = evaluated.loss
            elif evaluated.quality and evaluated.evaluated >= MIN_SAMPLES:
                curves.setdefault("qualities", {})[evaluated.step] = evaluated.quality
    return curves
