"""The curves of a page: modes over accelerators with what was measured, and where each stops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from vflops.studies.predict.predict_charts import Row, over_accelerators
from vflops.studies.predict.scaling_model import Prediction
from vflops.studies.predict.sweeps import Line, edges
from vflops.studies.predict.validation import MeasuredScale
from vflops.studies.scale.scale_charts import Curve

Figure = Callable[[Prediction | MeasuredScale], float | None]


def efficiency(each: Prediction | MeasuredScale) -> float | None:
    """Of an accelerator."""
    return each.efficiency


def flops(each: Prediction | MeasuredScale) -> float | None:
    """Of all of them."""
    return each.flops


def drawn(
    lines: Sequence[Line],
    scales: Sequence[int],
    measured: Sequence[MeasuredScale] = (),
    *,
    figure: Figure = efficiency,
    across: str = "accelerators",
) -> dict[str, Any] | None:
    """A line a mode, crosses where they stop paying, points that were measured; None without any.

    What has no line is left out.
    """
    predicted = [(line.name, each) for line in lines for each in line.found(scales)]
    rows = _rows(predicted, figure)
    if not rows:
        return None
    names = list(dict.fromkeys([*(line.name for line in lines), *(e.series for e in measured)]))
    beside = [(each.series, each) for each in measured]
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
    """Measurements with inputs of their own: a line a series, from those of its fewest ranks."""
    own = sorted((each for each in measured if each.inputs), key=lambda each: each.ranks)
    first = {each.series: each for each in reversed(own)}
    series = [each for each in dict.fromkeys(each.series for each in measured) if each in first]
    lines = [
        Line(name, inputs, bagging=first[name].models > 1)
        for name in series
        if (inputs := first[name].inputs) is not None
    ]
    chart = drawn(lines, scales, own, across=across)
    title = "Measured, and predicted from figures of the same links"
    return Curve("measured", title, chart) if chart else None


def _rows(
    found: Sequence[tuple[str, Prediction]] | Sequence[tuple[str, MeasuredScale]],
    figure: Figure,
    *,
    measured: bool = False,
) -> list[Row]:
    return [
        Row(each.accelerators, value, name, measured)
        for name, each in found
        if (value := figure(each)) is not None
    ]
