"""Predictions compared with measurements: the error of every point."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from vflops.errors import UsageError
from vflops.studies.predict.inputs import Inputs
from vflops.studies.predict.scaling_model import predict
from vflops.studies.scale.scale_result import EnsembleFigures, Scale


@dataclass(frozen=True)
class MeasuredPoint:
    """The measured mean time of a step of ``models`` jobs with ``ranks`` ranks each."""

    ranks: int
    step_s: float
    models: int = 1
    name: str = ""
    changes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Changes of the common inputs: ``{"link": {"bandwidth": 1.25e8}}``."""


@dataclass(frozen=True)
class Compared:
    """A measured point and its prediction."""

    point: MeasuredPoint
    predicted_s: float

    @property
    def error(self) -> float:
        """(predicted − measured) / measured time of the step."""
        return self.predicted_s / self.point.step_s - 1


def against(measured: Sequence[MeasuredPoint], inputs: Inputs) -> list[Compared]:
    """Return each point with its prediction from ``inputs`` and the changes of the point."""
    return [_compared(point, inputs) for point in measured]


def worst(compared: Sequence[Compared]) -> float:
    """Return the largest absolute error."""
    return max(abs(point.error) for point in compared)


def _compared(point: MeasuredPoint, inputs: Inputs) -> Compared:
    if not 0 < point.step_s < math.inf:
        raise UsageError(
            f"step_s of measured point {point.name or point.ranks} is {point.step_s!r}",
            hint="expected a finite number of seconds greater than 0",
        )
    prediction = predict(inputs.changed(**point.changes), point.models, point.ranks)
    return Compared(point, prediction.step.total_s)


@dataclass(frozen=True)
class MeasuredScale:
    """A measured point of a scaling experiment."""

    models: int
    ranks: int
    efficiency: float
    """Relative to a single accelerator."""
    flops: float | None
    name: str = ""
    """Its series; empty: bagging or data, depending on its models."""
    inputs: Inputs | None = None
    """Its own inputs, if they differ from those of the predictions."""

    @property
    def series(self) -> str:
        """The name of its line."""
        return self.name or ("bagging" if self.models > 1 else "data")

    @property
    def accelerators(self) -> int:
        """M × P."""
        return self.models * self.ranks


def measured_scales(scale: Scale) -> list[MeasuredScale]:
    """Return the points of an experiment that can be compared with predictions."""
    if scale.base.size.slots != 1:
        raise UsageError(
            f"this experiment begins with {scale.base.jobs} × {scale.base.ranks}: its efficiencies"
            " are not relative to one accelerator",
            hint="start with one: vflops scale WORKLOAD --scales 1,2,4",
        )
    points = [
        MeasuredScale(point.jobs, point.ranks, figures.efficiency, figures.flops)
        for point, figures in scale.completed(EnsembleFigures)
        if figures.efficiency is not None
    ]
    if not points:
        raise UsageError(
            f"the experiment of {scale.workload} has no complete ensemble with an efficiency",
            hint="continue it: run the same vflops scale command again",
        )
    return points
