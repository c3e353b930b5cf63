"""The points of a roofline chart: kinds of layers, and what training runs achieved."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from vflops.publish.pages.chart_style import ACHIEVED, data, tooltips
from vflops.publish.pages.label_layout import LabelLayout
from vflops.results.roofline.analysis import Bound
from vflops.units import percent, quantity

WIDE, NARROW = "width > 500", "width <= 500"
"""Filters for wide charts, and for phones, which show only short labels."""
_MAX_NAMED, _MIN_NAMED_SHARE = 4, 0.05
"""How many layer kinds are named at most, and which share of the time a named one needs."""
_NETWORK = "all-reduce of the gradients"
_STAR = (
    "M0,-1L0.29,-0.4L0.95,-0.31L0.48,0.15L0.59,0.81L0,0.5"
    "L-0.59,0.81L-0.48,0.15L-0.95,-0.31L-0.29,-0.4Z"
)


@dataclass(frozen=True)
class Achieved:
    """What a training run achieved on one device, and the maximum for its model."""

    name: str
    intensity: float
    """Operations of the model per byte that it moves."""
    flops: float
    most: float
    """The maximum FLOPS that the ceilings allow."""


def achieved_layer(
    achieved: Sequence[Achieved], x: Any, y: Any, wide: LabelLayout, narrow: LabelLayout
) -> Any:
    """Return labelled stars, each joined to the maximum that the ceilings allow."""
    import altair as alt

    rows: list[dict[str, Any]] = []
    for point in achieved:
        name = f"{point.name}: " if len(achieved) > 1 else ""
        row = {"intensity": point.intensity, "most": point.most, "what": point.name}
        reached, most = quantity(point.flops, "FLOPS"), quantity(point.most, "FLOPS")
        row |= {"achieved": reached, "at most": most, "share": percent(point.flops / point.most)}
        label = f"{name}achieved {reached}"
        for field, layout, text in (("label", wide, label), ("short", narrow, reached)):
            place = layout.place_label(point.intensity, point.flops, text, 13)
            place = place or layout.beside(point.intensity, point.flops)
            row |= dict(zip((f"{field} x", f"{field} y"), place, strict=True))
        rows.append({**row, "flops": point.flops, "label": label, "short": reached})
    base = alt.Chart(data(rows)).encode(
        x=x, y=y, tooltip=tooltips("what:N", "achieved:N", "at most:N", "share:N")
    )
    distance = base.mark_rule(color=ACHIEVED, strokeDash=[3, 3], strokeWidth=1.5).encode(
        y2=alt.Y2("most:Q")
    )
    ring = base.mark_point(size=90, color=ACHIEVED, strokeWidth=2, filled=False).encode(
        y=alt.Y("most:Q")
    )
    star = base.mark_point(filled=True, size=140, color=ACHIEVED, shape=_STAR, opacity=1)
    font = {"fontSize": 12, "fontWeight": "bold", "color": ACHIEVED}
    labels = [
        text
        for field, room in (("label", WIDE), ("short", NARROW))
        for text in texts(
            base.encode(x=alt.X(f"{field} x:Q"), y=alt.Y(f"{field} y:Q")),
            field,
            room,
            align="left",
            **font,
        )
    ]
    return alt.layer(distance, ring, *labels, star)


def points_layer(bounds: Sequence[Bound], x: Any, y: Any, layout: LabelLayout) -> Any:
    """Return one dot per kind of layer, with names for those that take longest."""
    import altair as alt

    rows = [row for bound in bounds for row in _point_rows(bound)]
    for row in rows:
        layout.keep_free(row["intensity"], row["flops"], 5)
    longest = [row for row in rows if row["of the time"] >= _MIN_NAMED_SHARE]
    named = []
    for row in sorted(longest, key=lambda row: -row["of the time"])[:_MAX_NAMED]:
        label = f"{row['model']} {row['kind']}" if len(bounds) > 1 else row["kind"]
        position = layout.place_label(row["intensity"], row["flops"], label, 11)
        if position is not None:
            named.append({"intensity": position[0], "flops": position[1], "label": label})
    dots = (
        alt.Chart(data(rows))
        .encode(x=x, y=y, tooltip=tooltips("what:N", "attainable:N", "bound by:N", "share:N"))
        .mark_point(filled=True, size=80, color="#111")
        .encode(
            shape=alt.condition(
                f"datum.kind == '{_NETWORK}'", alt.value("diamond"), alt.value("circle")
            )
        )
    )
    names = alt.Chart(data(named)).encode(x=x, y=y)
    return alt.layer(dots, *texts(names, "label", WIDE, align="left", fontSize=11, color="#111"))


def _point_rows(bound: Bound) -> list[dict[str, Any]]:
    """Return the layer kinds of a model and, if measured, the exchange of its gradients."""
    rows: list[dict[str, Any]] = [
        {
            "intensity": point.intensity,
            "flops": point.attainable,
            "model": bound.model,
            "kind": point.group,
            "of the time": point.bound_s / bound.step_s,
            "what": f"{bound.model}: {point.group}",
            "bound by": point.bound_by,
            "share": f"{100 * point.bound_s / bound.step_s:.0f} % of the minimum time",
            "attainable": quantity(point.attainable, "FLOPS"),
        }
        for point in bound.points
        if point.ops
    ]
    if bound.network_s:
        reached = min(bound.attainable, bound.ops / bound.network_s)
        rows.append(
            {
                "intensity": bound.ops / bound.gradient_bytes,
                "flops": reached,
                "model": bound.model,
                "kind": _NETWORK,
                "of the time": 1.0 if bound.network_s > bound.step_s else 0.0,
                "what": f"{bound.model}: all-reduce of its gradients",
                "bound by": "network" if bound.network_s > bound.step_s else "not the network",
                "share": f"batch {bound.batch} per rank",
                "attainable": quantity(reached, "FLOPS"),
            }
        )
    return rows


def texts(chart: Any, field: str, width_filter: str, **style: Any) -> list[Any]:
    """Return the texts of ``field`` with a halo, shown only if ``width_filter`` holds."""
    import altair as alt

    filtered = chart.encode(text=alt.Text(f"{field}:N")).transform_filter(width_filter)
    return [
        filtered.mark_text(**{**style, "stroke": "white", "strokeWidth": 4}),
        filtered.mark_text(**style),
    ]
