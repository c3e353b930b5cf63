"""Compares predictions with measured step times and efficiencies."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from vflops.errors import UsageError
from vflops.studies.predict.inputs import Inputs
from vflops.studies.predict.scaling_model import predict
from vflops.studies.scale.point_figures import EnsembleFigures
from vflops.studies.scale.scale_result import Scale


@dataclass(frozen=True)
class MeasuredStepTime:
    """The measured mean step time of ``models`` jobs with ``ranks`` ranks each."""

    ranks: int
    step_s: float
    models: int = 1
    name: str = ""
    changes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Values that replace those of the common inputs: ``{"link": {"bandwidth": 1.25e8}}``."""


@dataclass(frozen=True)
class PointComparison:
    """A measured step time and its prediction."""

    point: MeasuredStepTime
    predicted_s: float

    @property
    def error(self) -> float:
        """The relative error: (predicted − measured) / measured step time."""
        return self.predicted_s / self.point.step_s - 1


def compare_with_predictions(
    measured: Sequence[MeasuredStepTime], inputs: Inputs
) -> list[PointComparison]:
    """Return each point with its prediction, which uses ``inputs`` and the point's changes."""
    return [_compare(point, inputs) for point in measured]


def largest_error(compared: Sequence[PointComparison]) -> float:
    """Return the largest absolute error."""
    return max(abs(point.error) for point in compared)


def _compare(point: MeasuredStepTime, inputs: Inputs) -> PointComparison:
    if not 0 < point.step_s < math.inf:
        raise UsageError(
            f"step_s of measured point {point.name or point.ranks} is {point.step_s!r}",
            hint="give a finite number of seconds greater than 0",
        )
    prediction = predict(inputs.with_changes(**point.changes), point.models, point.ranks)
    return PointComparison(point, prediction.step.total_s)


@dataclass(frozen=True)
class MeasuredEfficiency:
    """The measured efficiency at one point of a scaling experiment."""

    models: int
    ranks: int
    efficiency: float
    """Relative to a single accelerator."""
    flops: float | None
    name: str = ""
    """The name of the series; if empty, ``bagging`` for several models and ``data`` for one."""
    inputs: Inputs | None = None
    """The inputs for this point's prediction, if they differ from the common ones."""

    @property
    def series(self) -> str:
        """The name of the series that the point belongs to."""
        return self.name or ("bagging" if self.models > 1 else "data")

    @property
    def accelerators(self) -> int:
        """The number of accelerators: models × ranks."""
        return self.models * self.ranks


def measured_efficiencies(scale: Scale) -> list[MeasuredEfficiency]:
    """Return the points of an experiment that can be compared with predictions."""
    if scale.variants:
        names = ", ".join(variant.name for variant in scale.variants)
        raise UsageError(
            f"the experiment compares variants ({names}), each with its own efficiencies",
            hint="use an experiment of --kind weak, bagging-vs-data or trade-off",
        )
    if scale.base.size.slots != 1:
        raise UsageError(
            f"the smallest point of this experiment is {scale.base.jobs} × {scale.base.ranks}, so"
            " its efficiencies are not relative to one accelerator",
            hint="include a single accelerator: vflops scale WORKLOAD --scales 1,2,4",
        )
    points = [
        MeasuredEfficiency(point.jobs, point.ranks, figures.efficiency, figures.flops)
        for point, figures in scale.completed(EnsembleFigures)
        if figures.efficiency is not None
    ]
    if not points:
        raise UsageError(
            f"the experiment with {scale.workload} has no complete point with an efficiency",
            hint="run the same vflops scale command again to continue the experiment",
        )
    return points
