"""The HTML page of a prediction: the parallel modes, and where each stops paying off."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from vflops.publish.pages.page import chart_library, render
from vflops.record.files import atomic
from vflops.studies.predict.inputs import Inputs
from vflops.studies.predict.predict_curves import flops, measured_curve, mode_chart
from vflops.studies.predict.predict_text import (
    InputRow,
    describe_training,
    measured_rows,
    most_efficient_sentences,
    notes,
    paying_rows,
    prediction_rows,
)
from vflops.studies.predict.scaling_model import Prediction
from vflops.studies.predict.sweeps import Lines
from vflops.studies.predict.validation import MeasuredEfficiency
from vflops.studies.scale.scale_charts import Curve


@dataclass(frozen=True)
class Forecast:
    """The contents of the page and of the terminal output."""

    inputs: Inputs
    given: Sequence[InputRow]
    points: Sequence[Prediction]
    scales: Sequence[int]
    modes: Lines
    exchanges: Lines
    measured: Sequence[MeasuredEfficiency] = field(default=())
    left_out: str | None = None
    """Why some scales have no point."""
    warning: str | None = None
    """Why the measured figures may be wrong; None if no reason is known."""

    @property
    def notes(self) -> list[str]:
        """Remarks on the table of points."""
        remarks = [f"Warning: {self.warning}"] if self.warning else []
        remarks += notes(self.points, self.inputs)
        return [*remarks, self.left_out] if self.left_out else remarks

    def curves(self) -> list[Curve]:
        """Return efficiency and FLOPS of the modes, and efficiency of the exchange algorithms."""
        lines, exchanges, scales = self.modes.lines, self.exchanges.lines, self.scales
        plain = [point for point in self.measured if point.inputs is None]
        charts = [
            ("efficiency", "Efficiency of each parallel mode", mode_chart(lines, scales, plain)),
            (
                "flops",
                "FLOPS of each parallel mode",
                mode_chart(lines, scales, plain, figure=flops),
            ),
            ("exchanges", "Data parallelism by exchange algorithm", mode_chart(exchanges, scales)),
        ]
        measured = measured_curve(self.measured, scales)
        drawn_curves = [Curve(name, title, chart) for name, title, chart in charts if chart]
        return [*drawn_curves, measured] if measured else drawn_curves


def write_page(forecast: Forecast, path: Path) -> None:
    """Write the page; it works offline."""
    page = render(
        "predict.html",
        title="Predicted scaling",
        story=describe_training(forecast.inputs),
        given=forecast.given,
        curves=forecast.curves(),
        predicted=prediction_rows(forecast.points),
        notes=forecast.notes,
        paying=paying_rows(forecast.modes, forecast.scales),
        exchanges=paying_rows(forecast.exchanges, forecast.scales),
        ranges=most_efficient_sentences(forecast.modes, forecast.scales),
        measured=measured_rows(forecast.measured, forecast.inputs),
        library=chart_library(),
    )
    atomic.write_text(path, page)
