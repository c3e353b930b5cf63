"""The page of a prediction: modes against accelerators, and where each stops paying."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from vflops.predict.against import MeasuredScale
from vflops.predict.charts import Row, over_accelerators
from vflops.predict.inputs import Inputs
from vflops.predict.lines import Line, Lines
from vflops.predict.model import Prediction
from vflops.predict.words import (
    InputRow,
    measured_rows,
    paying_rows,
    prediction_rows,
    ranges,
    story,
)
from vflops.record import atomic
from vflops.report.page import chart_library, render
from vflops.scale.charts import Curve


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

    def curves(self) -> list[Curve]:
        """Efficiency and FLOPS of the modes, and efficiency of the ways to exchange."""
        drawn = [line.name for line in self.modes.lines]
        names = list(dict.fromkeys([*drawn, *map(_series, self.measured)]))
        beside = [
            Row(each.accelerators, each.efficiency, _series(each), True) for each in self.measured
        ]
        rows = [*_rows(self.modes.lines, self.scales), *beside]
        found: list[Curve] = []
        if rows:
            chart = over_accelerators(rows, "efficiency", names=names, share=True)
            found.append(Curve("efficiency", "Efficiency of each parallel mode", chart))
        speed = [
            Row(each.accelerators, each.flops, line.name)
            for line in self.modes.lines
            for each in line.found(self.scales)
            if each.flops is not None
        ]
        speed += [
            Row(each.accelerators, each.flops, _series(each), True)
            for each in self.measured
            if each.flops is not None and speed
        ]
        if speed:
            chart = over_accelerators(speed, "FLOPS", names=names)
            found.append(Curve("flops", "FLOPS of each parallel mode", chart))
        ways = _rows(self.exchanges.lines, self.scales)
        if ways:
            own = [line.name for line in self.exchanges.lines]
            chart = over_accelerators(ways, "efficiency", names=own, share=True)
            found.append(Curve("exchanges", "Data parallelism by its way to exchange", chart))
        return found


def write_page(forecast: Forecast, path: Path) -> None:
    """Write the page: one file that needs no network."""
    page = render(
        "predict.html",
        title="Predicted scaling",
        story=story(forecast.inputs),
        given=forecast.given,
        curves=forecast.curves(),
        predicted=prediction_rows(forecast.points),
        paying=paying_rows(forecast.modes, forecast.scales),
        exchanges=paying_rows(forecast.exchanges, forecast.scales),
        ranges=ranges(forecast.modes, forecast.scales),
        measured=measured_rows(forecast.measured, forecast.inputs),
        library=chart_library(),
    )
    atomic.write_text(path, page)


def _rows(lines: Sequence[Line], scales: Sequence[int]) -> list[Row]:
    return [
        Row(each.accelerators, each.efficiency, line.name)
        for line in lines
        for each in line.found(scales)
    ]


def _series(each: MeasuredScale) -> str:
    """The line that a measured point belongs to."""
    return "bagging" if each.models > 1 else "data"
