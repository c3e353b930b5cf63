"""``scale.html``: the curves of an experiment, the ideal line, the efficiency table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from vflops.record import atomic
from vflops.report.page import chart_library, render
from vflops.report.style import SERIES, data, finished
from vflops.report.training_charts import WIDTH
from vflops.scale.result import Figures, Pair, Point, Scale, table

_IDEAL = "ideal"
TITLES = {
    "weak": "Weak scaling",
    "bagging-vs-data": "Bagging against data parallelism",
    "trade-off": "Models against ranks",
}


@dataclass(frozen=True)
class Curve:
    """One chart of the page."""

    id: str
    title: str
    chart: dict[str, Any]


def write_page(scale: Scale, path: Path) -> None:
    """Write the page; points that are not complete are in its table only."""
    page = render(
        "scale.html",
        title=f"{TITLES[scale.kind]} of {scale.workload}",
        scale=scale,
        table=table(scale),
        curves=curves(scale),
        failed=[p for p in scale.points if p.figures and p.figures.checks_failed],
        library=chart_library(),
    )
    atomic.write_text(path, page)


def curves(scale: Scale) -> list[Curve]:
    """Speed, time and quality over slots; of a trade-off over the pairs."""
    if not any(point.figures for point in scale.points):
        return []
    quality = scale.quality_name or "quality"
    flops = _rows(scale, lambda own: own.flops)
    vflops = _rows(scale, lambda own: own.vflops)
    if scale.kind != "trade-off":  # at one scale there is nothing to grow with
        flops += _ideal(scale, "flops")
        vflops += _ideal(scale, "vflops")
    time = _rows(scale, lambda own: own.window_s)
    good = _rows(scale, lambda own: own.quality)
    return [
        Curve("flops", "FLOPS", _chart(scale, flops, "FLOPS")),
        Curve("vflops", "VFLOPS", _chart(scale, vflops, "VFLOPS")),
        Curve("time", "Time", _chart(scale, time, "seconds")),
        Curve("quality", f"Quality: {quality}", _chart(scale, good, quality, scale.target)),
    ]


def _rows(scale: Scale, value: Callable[[Figures], float | None]) -> list[dict[str, Any]]:
    return [
        {"at": _at(scale, point.pair), "value": value(point.figures), "series": name}
        for point in scale.points
        if point.figures
        for name in _series(scale, point)
    ]


def _at(scale: Scale, pair: Pair) -> int | str:
    return f"{pair.models} × {pair.ranks}" if scale.kind == "trade-off" else pair.slots


def _series(scale: Scale, point: Point) -> list[str]:
    """The curves that a point is on: one model of one rank is the start of both."""
    if scale.kind != "bagging-vs-data":
        return ["measured"]
    both = (point.ranks == 1, "bagging, P = 1"), (point.models == 1, "data parallel, M = 1")
    return [name for is_on, name in both if is_on]


def _ideal(scale: Scale, figure: Literal["flops", "vflops"]) -> list[dict[str, Any]]:
    """The line on which every slot does what one of the base does."""
    most = max(point.pair.slots for point in scale.points)
    return [
        {"at": slots, "value": scale.ideal(figure, slots), "series": _IDEAL} for slots in (0, most)
    ]


def _chart(
    scale: Scale, rows: list[dict[str, Any]], title: str, target: float | None = None
) -> dict[str, Any]:
    import altair as alt

    names = list(dict.fromkeys(row["series"] for row in rows))
    colours = ["#888888" if name == _IDEAL else SERIES[k] for k, name in enumerate(names)]
    below = alt.Legend(orient="bottom", title=None) if len(names) > 1 else None
    dashes = [[6, 4] if name == _IDEAL else [1, 0] for name in names]
    if scale.kind == "trade-off":
        x = alt.X("at:N").sort([row["at"] for row in rows]).title("models × ranks")
        x = x.axis(labelAngle=0)
    else:
        ticks = sorted({point.pair.slots for point in scale.points})
        x = alt.X("at:Q").scale(zero=True, nice=False).title("slots: models × ranks")
        x = x.axis(values=ticks, format="d")
    y = alt.Y("value:Q").scale(zero=target is None).title(title)
    if title in ("FLOPS", "VFLOPS"):
        y = y.axis(format="~s")
    base = alt.Chart(data(rows)).encode(
        x=x,
        y=y,
        color=alt.Color("series:N").scale(domain=names, range=colours).legend(below),
        tooltip=["series:N", x.shorthand, "value:Q"],
    )
    dash = alt.StrokeDash("series:N").scale(domain=names, range=dashes).legend(below)
    dots = base.transform_filter(f"datum.series != '{_IDEAL}'").mark_point(filled=True, size=60)
    layers = [base.mark_line().encode(strokeDash=dash), dots]
    if target is not None:
        mark = alt.Chart(data([{"value": target, "label": f"target {target:g}"}]))
        layers.append(mark.mark_rule(color="#444", strokeDash=[6, 4]).encode(y=y))
        text = mark.mark_text(align="left", dx=6, dy=-8, color="#444")
        layers.append(text.encode(y=y, x=alt.value(0), text="label:N"))
    return finished(alt.layer(*layers).properties(width=WIDTH, height=260))
