"""The curves of the prediction page: each mode over accelerators, and measured points."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from vflops.studies.predict.predict_charts import Row, over_accelerators
from vflops.studies.predict.scaling_model import Prediction
from vflops.studies.predict.sweeps import Line, edges
from vflops.studies.predict.validation import MeasuredEfficiency
from vflops.studies.scale.scale_charts import Curve

Figure = Callable[[Prediction | MeasuredEfficiency], float | None]


def efficiency(point: Prediction | MeasuredEfficiency) -> float | None:
    """Return the efficiency of a point."""
    return point.efficiency


def flops(point: Prediction | MeasuredEfficiency) -> float | None:
    """Return the FLOPS of a point, of all accelerators together."""
    return point.flops


def mode_chart(
    lines: Sequence[Line],
    scales: Sequence[int],
    measured: Sequence[MeasuredEfficiency] = (),
    *,
    figure: Figure = efficiency,
    across: str = "accelerators",
) -> dict[str, Any] | None:
    """Return a chart with one line per mode and the measured points; None if there is no line.

    A cross marks where a mode stops paying off.
    """
    predicted = [(line.name, point) for line in lines for point in line.points(scales)]
    rows = _rows(predicted, figure)
    if not rows:
        return None
    names = list(
        dict.fromkeys([*(line.name for line in lines), *(point.series for point in measured)])
    )
    measured_points = [(point.series, point) for point in measured]
    return over_accelerators(
        [*rows, *_rows(measured_points, figure, measured=True)],
        "efficiency" if figure is efficiency else "FLOPS",
        names=names,
        ends=_rows(edges(lines, scales), figure),
        top=1 if figure is efficiency else None,
        paying=figure is efficiency,
        across=across,
    )


def measured_curve(
    measured: Sequence[MeasuredEfficiency], scales: Sequence[int], *, across: str = "accelerators"
) -> Curve | None:
    """Return the chart of the measurements that have their own inputs; None if there are none.

    The line of a series is predicted from the inputs of its point with the fewest ranks.
    """
    with_inputs = sorted(
        (point for point in measured if point.inputs), key=lambda point: point.ranks
    )
    first = {point.series: point for point in reversed(with_inputs)}
    series = [name for name in dict.fromkeys(point.series for point in measured) if name in first]
    lines = [
        Line(name, inputs, bagging=first[name].models > 1)
        for name in series
        if (inputs := first[name].inputs) is not None
    ]
    chart = mode_chart(lines, scales, with_inputs, across=across)
    title = "Measured, and predicted from inputs of the same links"
    return Curve("measured", title, chart) if chart else None


def _rows(
    points: Sequence[tuple[str, Prediction]] | Sequence[tuple[str, MeasuredEfficiency]],
    figure: Figure,
    *,
    measured: bool = False,
) -> list[Row]:
    return [
        Row(point.accelerators, value, name, measured)
        for name, point in points
        if (value := figure(point)) is not None
    ]
