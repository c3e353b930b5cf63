"""Files of measurements that predictions are set beside."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import Field

from vflops.errors import FolderError, UsageError
from vflops.record.files.document import Data, Document, read_json
from vflops.studies.predict.inputs import Inputs, validated
from vflops.studies.predict.validation import MeasuredScale, measured_scales
from vflops.studies.scale.scale_result import Scale

_Seconds = Annotated[float, Field(gt=0)]
_Some = Annotated[int, Field(ge=1)]


class MeasuredStep(Data):
    """The time of a step, and what a prediction of it rests on."""

    name: str
    models: _Some
    ranks: _Some
    step_s: _Seconds
    alone_s: _Seconds
    """Of the same work where nothing is exchanged."""
    inputs: dict[str, dict[str, Any]]
    """By section, as `vflops predict` takes them."""


class MeasuredSteps(Document):
    """``links.json`` of ``benchmarks/links.py``, or what somebody else has measured."""

    schema_name: ClassVar[str] = "vflops.measured-steps"

    points: tuple[MeasuredStep, ...] = Field(min_length=1)
    details: dict[str, Any] = Field(default_factory=dict)
    """What else was measured; nobody reads it."""

    def scales(self, source: Path) -> list[MeasuredScale]:
        """The points, each with inputs of its own."""
        return [
            MeasuredScale(
                models=each.models,
                ranks=each.ranks,
                efficiency=each.alone_s / each.step_s,
                flops=None,
                name=each.name,
                inputs=_inputs(each, source),
            )
            for each in self.points
        ]


def read_measured(path: Path) -> list[MeasuredScale]:
    """The points of a ``scale.json`` or of a file of steps."""
    data = read_json(path)
    if str(data.get("schema")).startswith(f"{MeasuredSteps.schema_name}/"):
        return MeasuredSteps.parse(data, path).scales(path)
    return measured_scales(Scale.parse(data, path))


def _inputs(each: MeasuredStep, source: Path) -> Inputs:
    try:
        return validated(each.inputs)
    except UsageError as error:
        raise FolderError(
            f"{source}: inputs of point {each.name!r}: {error.message}", hint=error.hint
        ) from error
