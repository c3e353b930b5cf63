"""The page of a prediction: modes against accelerators, and where each stops paying."""

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
    """All that a page, or a terminal, shows."""

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
        """What the table of the points needs beside it."""
        told = notes(self.points, self.inputs)
        return [*told, self.left_out] if self.left_out else told

    def curves(self) -> list[Curve]:
        """Efficiency and FLOPS of the modes, and efficiency of the ways to exchange."""
        lines, ways, scales = self.modes.lines, self.exchanges.lines, self.scales
        plain = [each for each in self.measured if each.inputs is None]
        tried = [
            ("efficiency", "Efficiency of each parallel mode", drawn(lines, scales, plain)),
            ("flops", "FLOPS of each parallel mode", drawn(lines, scales, plain, figure=flops)),
            ("exchanges", "Data parallelism by its way to exchange", drawn(ways, scales)),
        ]
        own = by_their_own(self.measured, scales)
        found = [Curve(name, title, chart) for name, title, chart in tried if chart]
        return [*found, own] if own else found


def write_page(forecast: Forecast, path: Path) -> None:
    """Write the page: one file that needs no network."""
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
