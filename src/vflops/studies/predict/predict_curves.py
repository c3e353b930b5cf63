"""The curves of a page: modes over accelerators with measurements, and where they end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from vflops.studies.predict.predict_charts import Row, over_accelerators
from vflops.studies.predict.scaling_model import Prediction
from vflops.studies.predict.sweeps import Line, edges
from vflops.studies.predict.validation import MeasuredScale
from vflops.studies.scale.scale_charts import Curve

Figure = Callable[[Prediction | MeasuredScale], float | None]


def efficiency(point: Prediction | MeasuredScale) -> float | None:
    """Return the efficiency of an accelerator."""
    return point.efficiency


def flops(point: Prediction | MeasuredScale) -> float | None:
    """Return the FLOPS of all accelerators."""
    return point.flops


def drawn(
    lines: Sequence[Line],
    scales: Sequence[int],
    measured: Sequence[MeasuredScale] = (),
    *,
    figure: Figure = efficiency,
    across: str = "accelerators",
) -> dict[str, Any] | None:
    """Return one line per mode, crosses where they stop paying off, and measured points.

    None if there is no line.
    """
    predicted = [(line.name, point) for line in lines for point in line.points(scales)]
    rows = _rows(predicted, figure)
    if not rows:
        return None
    names = list(
        dict.fromkeys([*(line.name for line in lines), *(point.series for point in measured)])
    )
    beside = [(point.series, point) for point in measured]
    return over_accelerators(
        [*rows, *_rows(beside, figure, measured=True)],
        "efficiency" if figure is efficiency else "FLOPS",
        names=names,
        ends=_rows(edges(lines, scales), figure),
        top=1 if figure is efficiency else None,
        paying=figure is efficiency,
        across=across,
    )


def by_their_own(
    measured: Sequence[MeasuredScale], scales: Sequence[int], *, across: str = "accelerators"
) -> Curve | None:
    """Return measurements with their own inputs: one line per series, from its fewest ranks."""
    with_inputs = sorted(
        (point for point in measured if point.inputs), key=lambda point: point.ranks
    )
    first = {point.series: point for point in reversed(with_inputs)}
    series = [name for name in dict.fromkeys(name.series for name in measured) if name in first]
    lines = [
        Line(name, inputs, bagging=first[name].models > 1)
        for name in series
        if (inputs := first[name].inputs) is not None
    ]
    chart = drawn(lines, scales, with_inputs, across=across)
    title = "Measured, and predicted from inputs of the same links"
    return Curve("measured", title, chart) if chart else None


def _rows(
    points: Sequence[tuple[str, Prediction]] | Sequence[tuple[str, MeasuredScale]],
    figure: Figure,
    *,
    measured: bool = False,
) -> list[Row]:
    return [
        Row(point.accelerators, value, name, measured)
        for name, point in points
        if (value := figure(point)) is not None
    ]
