"""Charts of an experiment: figures over its axis, and scores over time."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from vflops.publish.pages.chart_style import SERIES, apply_style, data, tooltips, with_style
from vflops.publish.report.training_charts import WIDTH
from vflops.studies.scale.scale_result import Scale

MEASURED, IDEAL = "measured", "ideal"
"""Names of series."""
SI, PERCENT, PLAIN = "~s", "%", "~g"
"""Number formats of an axis: with SI prefixes, as a percentage, and as a plain number."""
_GREY = "#888888"
_MARK = "#444"


@dataclass(frozen=True)
class Curve:
    """One chart of the page."""

    id: str
    title: str
    chart: dict[str, Any]


@dataclass(frozen=True)
class HorizontalAxis:
    """The horizontal axis: numbers if there are ticks, else names."""

    title: str
    ticks: tuple[int, ...] | None = None


class Row(NamedTuple):
    """A point of a line."""

    at: int | str
    value: float | None
    series: str = MEASURED


class Moment(NamedTuple):
    """A point of a line over time."""

    time: float
    value: float
    counts: bool


def ideal(scale: Scale, figure: Literal["rate", "valid"], end: int, ranks: int = 1) -> list[Row]:
    """Return the line of ideal scaling from the base, from 0 to ``end`` × ``ranks`` slots."""
    return [Row(at, scale.ideal(figure, at * ranks), IDEAL) for at in (0, end)]


def lines(
    rows: Sequence[Row],
    across: HorizontalAxis,
    title: str,
    *,
    form: str | None = None,
    target: tuple[str, float] | None = None,
    zero: bool | None = None,
) -> dict[str, Any]:
    """Return a chart with one line per series, the ideal one dashed.

    ``target`` is a name and a value, drawn as a horizontal line. ``form`` is the number format of
    the vertical axis, and ``zero`` makes it include 0; by default it does if there is no target.
    """
    import altair as alt

    names = list(dict.fromkeys(row.series for row in rows))
    colours = [_GREY if name == IDEAL else colour for name, colour in _coloured(names)]
    below = alt.Legend(orient="bottom", title=None) if len(names) > 1 else None
    dashes = [[6, 4] if name == IDEAL else [1, 0] for name in names]
    if across.ticks is None:
        x = alt.X("at:N").sort([str(row.at) for row in rows]).title(across.title).axis(labelAngle=0)
    else:
        domain = _domain(across.ticks, rows)
        x = alt.X("at:Q").scale(domain=domain, nice=False, padding=12).title(across.title)
        x = x.axis(values=list(across.ticks), format="d")
    y = alt.Y("value:Q").scale(zero=target is None if zero is None else zero).title(title)
    if form:
        y = y.axis(format=form)
    base = alt.Chart(data([row._asdict() for row in rows])).encode(
        x=x,
        y=y,
        color=alt.Color("series:N").scale(domain=names, range=colours).legend(below),
        tooltip=tooltips("series:N", x.shorthand, "value:Q"),
    )
    dash = alt.StrokeDash("series:N").scale(domain=names, range=dashes).legend(below)
    dots = base.transform_filter(f"datum.series != '{IDEAL}'").mark_point(filled=True, size=60)
    layers = [base.mark_line().encode(strokeDash=dash), dots]
    layers += _level(target, y)
    return apply_style(alt.layer(*layers).properties(width=WIDTH, height=260))


def bars(
    rows: Sequence[Row],
    title: str,
    words: Callable[[float | None], str],
    *,
    target: tuple[str, float] | None = None,
    named: bool = False,
) -> dict[str, Any]:
    """Return a chart with one bar per row, labelled with its value as ``words`` formats it.

    With a target, values are dots instead, on an axis that need not include 0. ``named`` says that
    a position is the complete name of its row.
    """
    import altair as alt

    names = list(dict.fromkeys(row.series for row in rows))
    single = len({row.at for row in rows}) == 1
    levels = [row.value for row in rows if row.value is not None] + ([target[1]] if target else [])
    lowest, highest = (min(levels) if target else 0.0), max(levels, default=0.0)
    margin = (highest - lowest or 1.0) / 10
    domain = [lowest - margin if target else 0.0, highest + 2 * margin]  # space for the labels
    labels = [row.series if single else f"{row.at}, {row.series}" for row in rows]
    if named:
        labels = [str(row.at) for row in rows]
    drawn = [
        {
            "label": label,
            "series": row.series,
            "value": domain[0] if row.value is None else row.value,
            "words": words(row.value),
        }
        for row, label in zip(rows, labels, strict=True)
    ]
    mark = f" (dashed: {target[0]} {target[1]:g})" if target else ""
    x = alt.X("value:Q").scale(domain=domain, nice=False).title(title + mark)
    x = x.axis(format="~g" if target else "~s", tickCount=6)
    y = alt.Y("label:N").sort(labels).title(None)
    colours = [colour for _, colour in _coloured(names)]
    colour = alt.Color("series:N").scale(domain=names, range=colours).legend(None)
    base = alt.Chart(data(drawn)).encode(x=x, y=y.axis(labelLimit=300, labelPadding=6))
    text = base.mark_text(align="left", dx=8, color=_MARK).encode(text=alt.Text("words:N"))
    if target is None:
        layers = [base.mark_bar(size=22).encode(color=colour), text]
    else:
        dots = base.mark_point(filled=True, size=90, opacity=1)
        level = alt.Chart(data([{"value": target[1]}])).mark_rule(color=_MARK, strokeDash=[6, 4])
        layers = [level.encode(x=x), dots.encode(color=colour), text]
    return apply_style(alt.layer(*layers).properties(width=WIDTH - 60, height=36 * len(rows)))


def grouped_bars(rows: Sequence[Row], title: str) -> dict[str, Any]:
    """Return a chart with a group of bars for each position, one bar per series."""
    import altair as alt

    names = list(dict.fromkeys(row.series for row in rows))
    places = list(dict.fromkeys(str(row.at) for row in rows))
    colours = [colour for _, colour in _coloured(names)]
    drawn = [
        {**row._asdict(), "words": ratio_text(row.value)} for row in rows if row.value is not None
    ]
    base = alt.Chart(data(drawn)).encode(
        x=alt.X("at:N").sort(places).title(None).axis(labelAngle=0),
        xOffset=alt.XOffset("series:N").sort(names),
        y=alt.Y("value:Q").title(title),
    )
    colour = alt.Color("series:N").scale(domain=names, range=colours)
    bars = base.mark_bar().encode(color=colour.legend(orient="bottom", title=None))
    text = base.mark_text(dy=-7, color=_MARK).encode(text=alt.Text("words:N"))
    return apply_style((bars + text).properties(width=WIDTH, height=200))


def ratio_text(ratio: float) -> str:
    """Return a ratio with two decimals, such as ``1.25``; one that is not 0 never looks like 0."""
    return "< 0.01" if 0 < ratio < 0.005 else f"{ratio:.2f}"


def stacked(*charts: dict[str, Any]) -> dict[str, Any]:
    """Return charts below each other as one picture; they share their colours."""
    own = ("config", "$schema")
    panels = [{key: part for key, part in chart.items() if key not in own} for chart in charts]
    return with_style({"$schema": charts[0]["$schema"], "vconcat": panels})


def _domain(ticks: Sequence[int], rows: Sequence[Row]) -> list[int]:
    """Return the ends of an axis that has room for all ticks, also those without values."""
    places = [*ticks, *(row.at for row in rows if isinstance(row.at, int))]
    least, most = min(places), max(places)
    return [least, most] if least < most else [least - 1, most + 1]


def _coloured(names: Sequence[str]) -> list[tuple[str, str]]:
    """Return each name with a colour; the colours repeat if there are too few."""
    return list(zip(names, itertools.cycle(SERIES), strict=False))


def _level(target: tuple[str, float] | None, y: Any) -> list[Any]:
    """Return a dashed horizontal line at the target, with its name."""
    import altair as alt

    if target is None:
        return []
    name, level = target
    mark = alt.Chart(data([{"value": level, "label": f"{name} {level:g}"}]))
    text = mark.mark_text(align="left", dx=6, dy=-8, color=_MARK)
    return [
        mark.mark_rule(color=_MARK, strokeDash=[6, 4]).encode(y=y),
        text.encode(y=y, x=alt.value(0), text=alt.Text("label:N")),
    ]


def over_time(
    courses: Mapping[str, Sequence[Moment]],
    title: str,
    since: str = "seconds since the search began",
    *,
    form: str = SI,
) -> dict[str, Any] | None:
    """Return a chart with one line per point over time, darker for larger points.

    Values that do not count are dashed. ``form`` is the number format of the vertical axis. Return
    None if there are no values.
    """
    import altair as alt

    rows = [
        {"size": name, **moment._asdict()} for name, course in courses.items() for moment in course
    ]
    if not rows:
        return None
    names = list(courses)
    whole = alt.Scale(domain=[0, max(row["time"] for row in rows)], nice=False)
    colour = alt.Color("size:O").scale(domain=names, scheme="viridis", reverse=True)
    base = alt.Chart(data(rows)).encode(
        x=alt.X("time:Q").title(since).scale(whole).axis(grid=False, tickCount=12),
        y=alt.Y("value:Q").title(title).axis(format=form, minExtent=56),
        color=colour.legend(orient="bottom", title=None, symbolType="stroke"),
        tooltip=tooltips("size:O", "time:Q", "value:Q"),
    )
    point = {"opacity": 0, "size": 60}
    counted = base.mark_line(strokeWidth=2, point=point).transform_filter("datum.counts")
    before = base.mark_line(strokeWidth=1.5, strokeDash=[3, 3]).transform_filter("!datum.counts")
    # A browser warns of a layer without rows.
    layers = [before] if not all(row["counts"] for row in rows) else []
    layers += [counted] if any(row["counts"] for row in rows) else []
    return apply_style(alt.layer(*layers).properties(width=WIDTH, height=260))
