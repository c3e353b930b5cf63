"""Charts of predictions: one line per mode over accelerators, and measurements as points."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from vflops.publish.pages.chart_style import SERIES, apply_style, data, tooltips
from vflops.publish.report.training_charts import WIDTH
from vflops.studies.predict.sweeps import MIN_EFFICIENCY

_MARK = "#444"
_DASHED = [7, 4]
"""The dash pattern of lines that may cover others."""


class Row(NamedTuple):
    """A point of a line, or a measured point."""

    at: int
    value: float
    series: str
    measured: bool = False


def over_accelerators(
    rows: Sequence[Row],
    title: str,
    *,
    names: Sequence[str],
    ends: Sequence[Row] = (),
    top: float | None = None,
    paying: bool = False,
    across: str = "accelerators",
) -> dict[str, Any]:
    """Return a chart over accelerators on a logarithmic axis.

    The order of ``names`` determines the colours, so that they agree between charts. ``ends``, the
    last points at which lines pay off, are drawn as numbered crosses. The vertical axis is linear
    from 0 to ``top``, or logarithmic if ``top`` is None. ``paying`` draws a horizontal line at the
    efficiency below which a mode does not pay off.
    """
    import altair as alt

    used = [name for name in names if any(row.series == name for row in rows)]
    colours = [SERIES[names.index(name) % len(SERIES)] for name in used]
    least, most = min(row.at for row in rows), max(row.at for row in rows)
    x = alt.X("at:Q").title(across).scale(type="log", base=2, domain=[least, most], nice=False)
    x = x.axis(values=_ticks(least, most), format=",d", grid=False, labelOverlap=True)
    y = alt.Y("value:Q").title(title)
    if top is not None:
        y = y.scale(domain=[0, top]).axis(format="%" if top == 1 else ".1f")
    else:
        decades = _decades([row.value for row in rows])
        y = y.scale(type="log", domain=[decades[0], decades[-1]], nice=False)
        y = y.axis(format="~s", values=decades)
    below = alt.Legend(orient="bottom", title=None, symbolType="stroke", columns=4)
    base = alt.Chart(data([row._asdict() for row in rows])).encode(
        x=x,
        y=y,
        color=alt.Color("series:N").scale(domain=used, range=colours).legend(below),
        tooltip=tooltips("series:N", "at:Q", "value:Q", "measured:N"),
    )
    dashes = [_DASHED if name == "torus" or "×" in name else [1, 0] for name in used]
    dash = alt.StrokeDash("series:N").scale(domain=used, range=dashes).legend(below)
    predicted = base.transform_filter("!datum.measured").mark_line(strokeWidth=2, clip=True)
    predicted = predicted.encode(strokeDash=dash)
    points = base.transform_filter("datum.measured")
    dots = points.mark_point(size=90, filled=True, stroke=_MARK, strokeWidth=1, opacity=1)
    layers = [predicted, dots, *_crosses(ends, base, x, y)]
    if paying:
        half = alt.Chart(data([{"value": MIN_EFFICIENCY, "label": "half of the time is waiting"}]))
        layers.append(half.mark_rule(color=_MARK, strokeDash=[6, 4]).encode(y=y))
        text = half.mark_text(align="left", dx=6, dy=10, color=_MARK)
        layers.append(text.encode(y=y, x=alt.value(0), text=alt.Text("label:N")))
    return apply_style(alt.layer(*layers).properties(width=WIDTH, height=300))


def _crosses(ends: Sequence[Row], base: Any, x: Any, y: Any) -> list[Any]:
    """Return crosses where lines stop paying off, with the number of accelerators above them."""
    import altair as alt

    if not ends:
        return []
    drawn = alt.Chart(data([row._asdict() for row in ends]))
    cross = drawn.mark_point(shape="cross", angle=45, size=170, filled=True, opacity=1)
    cross = cross.encode(x=x, y=y, color=base.encoding.color, tooltip=tooltips("series:N", "at:Q"))
    numbers = list({row.at: row._asdict() for row in ends}.values())
    text = alt.Chart(data(numbers)).mark_text(dy=-14, color=_MARK)
    return [cross, text.encode(x=x, y=y, text=alt.Text("at:Q").format(",d"))]


def _decades(values: Sequence[float]) -> list[float]:
    """Return the powers of ten from just below the values to just above them."""
    first, last = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    return [10.0**power for power in range(first, max(last, first + 1) + 1)]


def _ticks(first: int, last: int) -> list[int]:
    """Return powers of two, or every second or third of them and so on if there are many."""
    powers = range(first.bit_length() - 1, last.bit_length())
    every = max(1, -(-len(powers) // 12))
    return [1 << power for power in powers if power % every == 0]
