"""Predictions beside measurements: the error of every point."""

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
    """The mean time of a step, measured on ``ranks`` ranks of each of ``models`` jobs."""

    ranks: int
    step_s: float
    models: int = 1
    name: str = ""
    changes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """How its inputs differ from those of all: ``{"link": {"bandwidth": 1.25e8}}``."""


@dataclass(frozen=True)
class Compared:
    """A measured point and what was predicted for it."""

    point: MeasuredPoint
    predicted_s: float

    @property
    def error(self) -> float:
        """(predicted − measured) / measured, of the step's time."""
        return self.predicted_s / self.point.step_s - 1


def against(measured: Sequence[MeasuredPoint], inputs: Inputs) -> list[Compared]:
    """Each point with its prediction; ``inputs`` changed as the point says."""
    return [_compared(point, inputs) for point in measured]


def worst(compared: Sequence[Compared]) -> float:
    """The largest error of all, without its sign."""
    return max(abs(each.error) for each in compared)


def _compared(point: MeasuredPoint, inputs: Inputs) -> Compared:
    if not 0 < point.step_s < math.inf:
        raise UsageError(
            f"step_s of measured point {point.name or point.ranks} is {point.step_s!r}",
            hint="expected a finite number of seconds greater than 0",
        )
    found = predict(inputs.changed(**point.changes), point.models, point.ranks)
    return Compared(point, found.step.total_s)


@dataclass(frozen=True)
class MeasuredScale:
    """A point of an experiment."""

    models: int
    ranks: int
    efficiency: float
    """Against one by itself."""
    flops: float | None
    name: str = ""
    """Its series; none: bagging or data, by its models."""
    inputs: Inputs | None = None
    """What it was measured with, where that is not what all predictions are for."""

    @property
    def series(self) -> str:
        """The line that it belongs to, or one of its own."""
        return self.name or ("bagging" if self.models > 1 else "data")

    @property
    def accelerators(self) -> int:
        """M × P."""
        return self.models * self.ranks


def measured_scales(scale: Scale) -> list[MeasuredScale]:
    """The points of an experiment that can be set beside predictions."""
    if scale.base.size.slots != 1:
        raise UsageError(
            f"this experiment begins with {scale.base.jobs} × {scale.base.ranks}: its efficiencies"
            " are not those against one accelerator",
            hint="measure from one on: vflops scale WORKLOAD --scales 1,2,4",
        )
    found = [
        MeasuredScale(point.jobs, point.ranks, own.efficiency, own.flops)
        for point, own in scale.found(EnsembleFigures)
        if own.efficiency is not None
    ]
    if not found:
        raise UsageError(
            f"the experiment of {scale.workload} has no complete ensemble with an efficiency",
            hint="go on with it: the same vflops scale command",
        )
    return found
