"""Files of measurements that predictions are compared with."""

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
    """The measured time of a step, and the inputs for its prediction."""

    name: str
    models: _Some
    ranks: _Some
    step_s: _Seconds
    alone_s: _Seconds
    """The time of the same work without any exchange."""
    inputs: dict[str, dict[str, Any]]
    """By section, as for `vflops predict`."""


class MeasuredSteps(Document):
    """``links.json`` of ``benchmarks/links.py``, or measurements of others in this format."""

    schema_name: ClassVar[str] = "vflops.measured-steps"

    points: tuple[MeasuredStep, ...] = Field(min_length=1)
    details: dict[str, Any] = Field(default_factory=dict)
    """Other measurements, which are not read."""

    def scales(self, source: Path) -> list[MeasuredScale]:
        """Return the points, each with its own inputs."""
        return [
            MeasuredScale(
                models=point.models,
                ranks=point.ranks,
                efficiency=point.alone_s / point.step_s,
                flops=None,
                name=point.name,
                inputs=_inputs(point, source),
            )
            for point in self.points
        ]


def read_measured(path: Path) -> list[MeasuredScale]:
    """Return the points of a ``scale.json`` or of a file of measured steps."""
    data = read_json(path)
    if str(data.get("schema")).startswith(f"{MeasuredSteps.schema_name}/"):
        return MeasuredSteps.parse(data, path).scales(path)
    return measured_scales(Scale.parse(data, path))


def _inputs(point: MeasuredStep, source: Path) -> Inputs:
    try:
        return validated(point.inputs)
    except UsageError as error:
        raise FolderError(
            f"{source}: inputs of point {point.name!r}: {error.message}", hint=error.hint
        ) from error
