"""Charts of a prediction: a line a mode over accelerators, what was measured as points."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from vflops.predict.lines import PAYS
from vflops.report.style import SERIES, data, finished
from vflops.report.training_charts import WIDTH

_MARK = "#444"
_DASHED = [7, 4]
"""Of lines that lie on others: what is below shows."""


class Row(NamedTuple):
    """A point of a line, or one that was measured."""

    at: int
    value: float
    series: str
    measured: bool = False


def over_accelerators(
    rows: Sequence[Row], title: str, *, names: Sequence[str], share: bool = False
) -> dict[str, Any]:
    """A chart with accelerators on a logarithmic axis.

    ``names`` gives every line its colour, on all charts the same. A ``share`` is from 0 to 1 with
    a rule where it stops paying, anything else is logarithmic too.
    """
    import altair as alt

    used = [name for name in names if any(row.series == name for row in rows)]
    colours = [SERIES[names.index(name) % len(SERIES)] for name in used]
    ends = [min(row.at for row in rows), max(row.at for row in rows)]
    x = alt.X("at:Q").title("accelerators").scale(type="log", base=2, domain=ends, nice=False)
    x = x.axis(values=_ticks(*ends), format=",d", grid=False, labelOverlap=True)
    y = alt.Y("value:Q").title(title)
    if share:
        y = y.scale(domain=[0, 1]).axis(format="%")
    else:
        decades = _decades([row.value for row in rows])
        y = y.scale(type="log", domain=[decades[0], decades[-1]], nice=False)
        y = y.axis(format="~s", values=decades)
    below = alt.Legend(orient="bottom", title=None, symbolType="stroke", columns=4)
    base = alt.Chart(data([row._asdict() for row in rows])).encode(
        x=x,
        y=y,
        color=alt.Color("series:N").scale(domain=used, range=colours).legend(below),
        tooltip=["series:N", "at:Q", "value:Q", "measured:N"],
    )
    dashes = [_DASHED if name == "torus" or "×" in name else [1, 0] for name in used]
    dash = alt.StrokeDash("series:N").scale(domain=used, range=dashes).legend(below)
    predicted = base.transform_filter("!datum.measured").mark_line(strokeWidth=2, clip=True)
    predicted = predicted.encode(strokeDash=dash)
    found = base.transform_filter("datum.measured")
    dots = found.mark_point(size=90, filled=True, stroke=_MARK, strokeWidth=1, opacity=1)
    layers = [predicted, dots]
    if share:
        half = alt.Chart(data([{"value": PAYS, "label": "half of the time is waiting"}]))
        layers.append(half.mark_rule(color=_MARK, strokeDash=[6, 4]).encode(y=y))
        text = half.mark_text(align="center", dy=-8, color=_MARK)
        layers.append(text.encode(y=y, x=alt.value(WIDTH / 2), text="label:N"))
    return finished(alt.layer(*layers).properties(width=WIDTH, height=300))


def _decades(values: Sequence[float]) -> list[float]:
    """Powers of ten that hold all values between them."""
    first, last = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    return [10.0**power for power in range(first, max(last, first + 1) + 1)]


def _ticks(first: int, last: int) -> list[int]:
    """Powers of two, or of four or more where there are many."""
    powers = range(first.bit_length() - 1, last.bit_length())
    every = max(1, -(-len(powers) // 12))
    return [1 << power for power in powers if power % every == 0]
