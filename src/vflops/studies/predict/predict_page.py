"""The page of a prediction: modes over accelerators, and where each stops paying off."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from vflops.publish.pages.page import chart_library, render
from vflops.record.files import atomic
from vflops.studies.predict.inputs import Inputs
from vflops.studies.predict.predict_curves import by_their_own, drawn, flops
from vflops.studies.predict.predict_text import (
    InputRow,
    measured_rows,
    notes,
    paying_rows,
    prediction_rows,
    ranges,
    story,
)
from vflops.studies.predict.scaling_model import Prediction
from vflops.studies.predict.sweeps import Lines
from vflops.studies.predict.validation import MeasuredScale
from vflops.studies.scale.scale_charts import Curve


@dataclass(frozen=True)
class Forecast:
    """Everything that the page and the terminal show."""

    inputs: Inputs
    given: Sequence[InputRow]
    points: Sequence[Prediction]
    scales: Sequence[int]
    modes: Lines
    exchanges: Lines
    measured: Sequence[MeasuredScale] = field(default=())
    left_out: str | None = None
    """Why some scales have no point."""

    @property
    def notes(self) -> list[str]:
        """Remarks on the table of points."""
        remarks = notes(self.points, self.inputs)
        return [*remarks, self.left_out] if self.left_out else remarks

    def curves(self) -> list[Curve]:
        """Return efficiency and FLOPS of the modes, and efficiency of the exchange algorithms."""
        lines, ways, scales = self.modes.lines, self.exchanges.lines, self.scales
        plain = [point for point in self.measured if point.inputs is None]
        tried = [
            ("efficiency", "Efficiency of each parallel mode", drawn(lines, scales, plain)),
            ("flops", "FLOPS of each parallel mode", drawn(lines, scales, plain, figure=flops)),
            ("exchanges", "Data parallelism by exchange algorithm", drawn(ways, scales)),
        ]
        measured = by_their_own(self.measured, scales)
        drawn_curves = [Curve(name, title, chart) for name, title, chart in tried if chart]
        return [*drawn_curves, measured] if measured else drawn_curves


def write_page(forecast: Forecast, path: Path) -> None:
    """Write the page, which needs no network."""
    page = render(
        "predict.html",
        title="Predicted scaling",
        story=story(forecast.inputs),
        given=forecast.given,
        curves=forecast.curves(),
        predicted=prediction_rows(forecast.points),
        notes=forecast.notes,
        paying=paying_rows(forecast.modes, forecast.scales),
        exchanges=paying_rows(forecast.exchanges, forecast.scales),
        ranges=ranges(forecast.modes, forecast.scales),
        measured=measured_rows(forecast.measured, forecast.inputs),
        library=chart_library(),
    )
    atomic.write_text(path, page)
