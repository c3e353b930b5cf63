"""Reads files with measurements, to compare predictions with them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import Field

from vflops.errors import FolderError, UsageError
from vflops.record.files.document import Data, Document, read_json
from vflops.studies.predict.inputs import Inputs, parse_inputs
from vflops.studies.predict.validation import MeasuredEfficiency, measured_efficiencies
from vflops.studies.scale.scale_result import Scale

_Seconds = Annotated[float, Field(gt=0)]
_Count = Annotated[int, Field(ge=1)]


class MeasuredStep(Data):
    """The measured time of a step, and the inputs for its prediction."""

    name: str
    models: _Count
    ranks: _Count
    step_s: _Seconds
    alone_s: _Seconds
    """The step time of the same work without any communication."""
    inputs: dict[str, dict[str, Any]]
    """Inputs by section, as ``vflops predict`` takes them."""


class MeasuredSteps(Document):
    """``links.json`` of ``benchmarks/links.py``, or other measurements in this format."""

    schema_name: ClassVar[str] = "vflops.measured-steps"

    points: tuple[MeasuredStep, ...] = Field(min_length=1)
    details: dict[str, Any] = Field(default_factory=dict)
    """Further measurements, which vflops does not read."""

    def efficiencies(self, source: Path) -> list[MeasuredEfficiency]:
        """Return the efficiency of each point, with the inputs for its prediction.

        ``source`` is the path of the file, for error messages.
        """
        return [
            MeasuredEfficiency(
                models=point.models,
                ranks=point.ranks,
                efficiency=point.alone_s / point.step_s,
                flops=None,
                name=point.name,
                inputs=_inputs(point, source),
            )
            for point in self.points
        ]


def read_measurements(path: Path) -> list[MeasuredEfficiency]:
    """Return the points of a ``scale.json``, or of a file with measured steps."""
    data = read_json(path)
    if str(data.get("schema")).startswith(f"{MeasuredSteps.schema_name}/"):
        return MeasuredSteps.parse(data, path).efficiencies(path)
    return measured_efficiencies(Scale.parse(data, path))


def _inputs(point: MeasuredStep, source: Path) -> Inputs:
    try:
        return parse_inputs(point.inputs)
    except UsageError as error:
        raise FolderError(
            f"{source}: the inputs of point {point.name!r} are wrong: {error.message}",
            hint=error.hint,
        ) from error
