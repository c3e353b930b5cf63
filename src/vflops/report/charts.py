"""Charts as Vega-Lite specifications; altair is imported where it draws."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vflops.record import atomic
from vflops.report.style import ACHIEVED, COLOURS, data, finished
from vflops.roofline.analysis import Bound, Roofs
from vflops.units import percent, quantity

NAMES = {"gemm": "matrix product", "convolution": "convolution"}
WIDTH, HEIGHT = 800, 440
_ROOF_LABEL: dict[str, Any] = {
    "align": "right",
    "baseline": "bottom",
    "fontSize": 11,
    "dx": -6,
    "dy": -3,
}
_NETWORK = "all-reduce of the gradients"
_STAR = (
    "M0,-1L0.29,-0.4L0.95,-0.31L0.48,0.15L0.59,0.81L0,0.5"
    "L-0.59,0.81L-0.48,0.15L-0.95,-0.31L-0.29,-0.4Z"
)
_PLAIN_BELOW_ONE = "datum.value < 1 ? format(datum.value, '~g') : format(datum.value, '~s')"


@dataclass(frozen=True)
class Achieved:
    """What a training reached on one device, beside what the ceilings allow its model."""

    name: str
    intensity: float
    """Operations for each byte that the whole model moves."""
    flops: float
    most: float
    """FLOPS that the ceilings allow at most."""


def roofline(
    machine: Roofs, bounds: Sequence[Bound], achieved: Sequence[Achieved] = ()
) -> dict[str, Any]:
    """Ceilings and slopes with the kinds of layers of each model under them, and what was reached.

    A point of ``achieved`` is a star, joined to what is possible at most for its model.
    """
    import altair as alt

    assert machine.memory is not None
    x_range, y_range = _ranges(machine, bounds, achieved)
    x = alt.X("intensity:Q").scale(type="log", domain=x_range, nice=False)
    x = x.title("operations per byte").axis(labelExpr=_PLAIN_BELOW_ONE, grid=False)
    y = alt.Y("flops:Q").scale(type="log", domain=y_range, nice=False)
    y = y.title("FLOPS").axis(format="~s", gridOpacity=0.4)
    colour = (
        alt.Color("precision:N")
        .scale(domain=list(COLOURS), range=list(COLOURS.values()))
        .legend(None)
    )
    roofs = data(_roof_rows(machine, x_range))
    lines = (
        alt.Chart(roofs)
        .mark_line(strokeWidth=2)
        .encode(
            x=x,
            y=y,
            color=colour,
            detail="name:N",
            strokeDash=alt.StrokeDash("benchmark:N")
            .scale(domain=list(NAMES.values()), range=[[1, 0], [6, 4]])
            .legend(orient="top", title=None, symbolStrokeColor="#555"),
            tooltip=["name:N", "peak:N"],
        )
    )
    names = alt.Chart(data(_roof_labels(machine, x_range, y_range)))
    # Within the plot, above the right end of their lines: a phone has no room beside it.
    named = names.encode(x=x, y=y, text="label:N")
    labels = [
        named.mark_text(**_ROOF_LABEL, stroke="white", strokeWidth=4),
        named.mark_text(**_ROOF_LABEL).encode(color=colour),
    ]
    layers = [_slopes(machine, x_range, y_range, x, y), lines, *labels]
    if achieved:
        layers.append(_achieved(achieved, x, y))
    if bounds:
        layers.append(_points(bounds, y_range, x, y))
    return finished(alt.layer(*layers).properties(width=WIDTH, height=HEIGHT).interactive())


def save(chart: dict[str, Any], path: Path, format: str) -> None:
    """Write a chart as ``svg`` or ``png`` for a paper."""
    import vl_convert

    if format == "svg":
        atomic.write_text(path, vl_convert.vegalite_to_svg(chart))
    else:
        atomic.write_bytes(path, vl_convert.vegalite_to_png(chart, scale=2))


def _ranges(
    machine: Roofs, bounds: Sequence[Bound], achieved: Sequence[Achieved]
) -> tuple[list[float], list[float]]:
    """Axes that hold every ridge, every ceiling and every point, with some room."""
    assert machine.memory is not None
    peaks = list(machine.compute.values()) or [machine.memory]
    points = [point for bound in bounds for point in bound.points if point.ops]
    slopes = [slope for slope in (machine.memory, machine.network) if slope]
    ridges = [peak / slope for peak in peaks for slope in slopes]
    intensities = [point.intensity for point in points] or [1.0]
    network = [bound.ops / bound.gradient_bytes for bound in bounds if bound.network_s]
    x_low, x_high = min(intensities + ridges) / 3, max(ridges + intensities + network) * 6
    flops = [point.attainable for point in points] or [machine.memory]
    flops += [each.flops for each in achieved if each.flops]
    return [x_low, x_high], [min(flops) / 3, max(peaks) * 2.5]


def _roof_rows(machine: Roofs, x_range: list[float]) -> list[dict[str, Any]]:
    assert machine.memory is not None
    rows = []
    for (benchmark, precision), peak in machine.compute.items():
        for intensity in (peak / machine.memory, x_range[1]):
            rows.append(
                {
                    "name": f"{precision} {NAMES[benchmark]}",
                    "benchmark": NAMES[benchmark],
                    "precision": precision,
                    "intensity": intensity,
                    "flops": peak,
                    "peak": quantity(peak, "FLOPS"),
                }
            )
    return rows


def _roof_labels(
    machine: Roofs, x_range: list[float], y_range: list[float]
) -> list[dict[str, Any]]:
    """One label a ceiling at its right end, moved apart where they would overlap."""
    step = (y_range[1] / y_range[0]) ** (14 / HEIGHT)
    rows: list[dict[str, Any]] = []
    above = 0.0
    for (benchmark, precision), peak in sorted(machine.compute.items(), key=lambda item: item[1]):
        place = max(peak, above * step)
        above = place
        label = f"{precision} {NAMES[benchmark]} {quantity(peak, 'FLOPS')}"
        rows.append(
            {"intensity": x_range[1], "flops": place, "precision": precision, "label": label}
        )
    return rows


def _slopes(machine: Roofs, x_range: list[float], y_range: list[float], x: Any, y: Any) -> Any:
    """The memory slope and, where it was measured, the network slope, each with its label."""
    import altair as alt

    lines, labels = [], []
    top = max(machine.compute.values(), default=y_range[1])
    for name, slope, source in (
        ("memory", machine.memory, ""),
        ("all-reduce", machine.network, f" ({machine.network_case})"),
    ):
        if not slope:
            continue
        low = max(x_range[0], y_range[0] / slope)
        for intensity in (low, min(top / slope, x_range[1])):
            lines.append({"name": name, "intensity": intensity, "flops": slope * intensity})
        label = f"{name} {quantity(slope, 'B/s')}{source}"
        labels.append({"label": label, "intensity": low, "flops": slope * low})
    line = (
        alt.Chart(data(lines))
        .mark_line(color="#666", strokeWidth=1.5)
        .encode(
            x=x,
            y=y,
            detail="name:N",
            strokeDash=alt.condition(
                "datum.name == 'all-reduce'", alt.value([2, 3]), alt.value([1, 0])
            ),
        )
    )
    text = (
        alt.Chart(data(labels))
        .mark_text(align="left", baseline="bottom", dx=6, dy=-6, color="#555", fontSize=11)
        .encode(x=x, y=y, text="label:N")
    )
    return line + text


def _achieved(achieved: Sequence[Achieved], x: Any, y: Any) -> Any:
    """Stars with their figures, each below the most that is possible for the whole model."""
    import altair as alt

    rows: list[dict[str, Any]] = []
    for each in achieved:
        name = f"{each.name}: " if len(achieved) > 1 else ""
        row = {"intensity": each.intensity, "most": each.most, "what": each.name}
        reached, most = quantity(each.flops, "FLOPS"), quantity(each.most, "FLOPS")
        row |= {"achieved": reached, "at most": most, "share": percent(each.flops / each.most)}
        rows.append({**row, "flops": each.flops, "label": f"{name}achieved {reached}"})
    base = alt.Chart(data(rows)).encode(
        x=x, y=y, tooltip=["what:N", "achieved:N", "at most:N", "share:N"]
    )
    way = base.mark_rule(color=ACHIEVED, strokeDash=[3, 3], strokeWidth=1.5).encode(y2="most:Q")
    ring = base.mark_point(size=90, color=ACHIEVED, strokeWidth=2, filled=False).encode(
        y=alt.Y("most:Q")
    )
    star = base.mark_point(filled=True, size=140, color=ACHIEVED, shape=_STAR, opacity=1)
    halo = alt.MarkDef(type="text", fontSize=12, stroke="white", strokeWidth=4)
    text = alt.MarkDef(type="text", fontSize=12, fontWeight="bold", color=ACHIEVED)
    label = base.encode(text="label:N")
    labels = [_marked(label, mark, align="left", dx=12) for mark in (halo, text)]
    return alt.layer(way, ring, star, *labels)


def _points(bounds: Sequence[Bound], y_range: list[float], x: Any, y: Any) -> Any:
    import altair as alt

    def prefix(bound: Bound) -> str:
        return f"{bound.model} " if len(bounds) > 1 else ""

    rows: list[dict[str, Any]] = []
    for bound in bounds:
        for point in bound.points:
            if point.ops:
                rows.append(
                    {
                        "intensity": point.intensity,
                        "flops": point.attainable,
                        "precision": bound.precision,
                        "label": f"{prefix(bound)}{point.kind}",
                        "what": f"{bound.model}: {point.kind}",
                        "bound by": point.bound_by,
                        "share": f"{100 * point.bound_s / bound.step_s:.0f} % of the least time",
                        "attainable": quantity(point.attainable, "FLOPS"),
                    }
                )
        if bound.network_s:
            intensity = bound.ops / bound.gradient_bytes
            reached = min(bound.attainable, bound.ops / bound.network_s)
            rows.append(
                {
                    "intensity": intensity,
                    "flops": reached,
                    "precision": bound.precision,
                    "label": _NETWORK,
                    "what": f"{bound.model}: all-reduce of its gradients",
                    "bound by": "network" if bound.network_s > bound.step_s else "not the network",
                    "share": f"batch {bound.batch} a rank",
                    "attainable": quantity(reached, "FLOPS"),
                }
            )
    _spread_labels(rows, y_range)
    base = alt.Chart(data(rows)).encode(x=x, y=y)
    tooltip = ["what:N", "attainable:N", "bound by:N", "share:N"]
    dots = base.mark_point(filled=True, size=80, color="#111").encode(
        tooltip=tooltip,
        shape=alt.condition(
            f"datum.label == '{_NETWORK}'", alt.value("diamond"), alt.value("circle")
        ),
    )
    labels = alt.Chart(data(rows)).encode(x=x, y=alt.Y("label_flops:Q"), text="label:N")
    network = f"datum.label == '{_NETWORK}'"
    kinds, gradients = labels.transform_filter(f"!({network})"), labels.transform_filter(network)
    halo = alt.MarkDef(type="text", fontSize=11, stroke="white", strokeWidth=4)
    text = alt.MarkDef(type="text", fontSize=11, color="#111")
    layers = [dots]
    for mark in (halo, text):
        layers.append(_marked(kinds, mark, align="left", dx=9))
        layers.append(_marked(gradients, mark, align="right", dx=-9))
    return alt.layer(*layers)


def _marked(chart: Any, mark: Any, **place: Any) -> Any:
    marked = chart.copy()
    marked.mark = mark.copy()
    for name, value in place.items():
        marked.mark[name] = value
    return marked


def _spread_labels(rows: list[dict[str, Any]], y_range: list[float]) -> None:
    """Give every point a height for its label, apart from those of points near it."""
    step = (y_range[1] / y_range[0]) ** (13 / HEIGHT)
    placed: list[tuple[float, float]] = []
    for row in sorted(rows, key=lambda row: float(row["flops"])):
        height = float(row["flops"])
        for intensity, other in placed:
            near = 0.1 < row["intensity"] / intensity < 10
            if near and other / step < height < other * step:
                height = other * step
        placed.append((row["intensity"], height))
        row["label_flops"] = height
