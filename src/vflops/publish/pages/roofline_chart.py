"""The roofline chart; altair is imported when needed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vflops.publish.pages.chart_style import COLOURS, apply_style, data, tooltips
from vflops.publish.pages.label_layout import Box, LabelLayout, powers_of_ten
from vflops.publish.pages.roofline_points import (
    NARROW,
    WIDE,
    Achieved,
    achieved_layer,
    points_layer,
    texts,
)
from vflops.record.files import atomic
from vflops.results.roofline.analysis import Bound, Ceilings
from vflops.units import quantity

NAMES = {"gemm": "matrix product", "convolution": "convolution"}
WIDTH, HEIGHT = 800, 440
_ROOF_LABEL: dict[str, Any] = {"align": "right", "baseline": "bottom", "dx": -6, "dy": -3}
_PLAIN_BELOW_ONE = "datum.value < 1 ? format(datum.value, '~g') : format(datum.value, '~s')"


def roofline(
    machine: Ceilings, bounds: Sequence[Bound], achieved: Sequence[Achieved] = ()
) -> dict[str, Any]:
    """Return a chart of the ceilings, the layer kinds of each model, and what was achieved.

    ``achieved`` is drawn as stars, each joined to the maximum that the ceilings allow.
    """
    import altair as alt

    assert machine.memory is not None
    x_range, y_range = _ranges(machine, bounds, achieved)
    x = alt.X("intensity:Q").scale(type="log", domain=x_range, nice=False)
    x = x.title("operations per byte").axis(
        labelExpr=_PLAIN_BELOW_ONE, grid=False, values=powers_of_ten(*x_range)
    )
    y = alt.Y("flops:Q").scale(type="log", domain=y_range, nice=False)
    y = y.title("FLOPS").axis(format="~s", gridOpacity=0.4, values=powers_of_ten(*y_range))
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
            detail=alt.Detail("name:N"),
            strokeDash=alt.StrokeDash("benchmark:N")
            .scale(domain=list(NAMES.values()), range=[[1, 0], [6, 4]])
            .legend(orient="top", title=None, symbolStrokeColor="#555"),
            tooltip=tooltips("name:N", "peak:N"),
        )
    )
    layout = LabelLayout((x_range[0], x_range[1]), (y_range[0], y_range[1]), (WIDTH, HEIGHT))
    # Labels are inside the plot, above the right ends of the lines, to fit on a phone.
    labels = []
    for field, room in (("label", WIDE), ("short", NARROW)):
        named = alt.Chart(data(_roof_labels(machine, x_range, layout, field)))
        named = named.encode(x=x, y=y, color=colour)
        labels += texts(named, field, room, fontSize=11, **_ROOF_LABEL)
    layers = [_slopes(machine, x_range, y_range, x, y, layout), lines, *labels]
    for point in achieved:
        layout.keep_free(point.intensity, point.flops, 8)
        layout.keep_free(point.intensity, point.most, 6)
    if achieved:
        layers.append(achieved_layer(achieved, x, y, layout))
    if bounds:
        layers.append(points_layer(bounds, x, y, layout))
    return apply_style(alt.layer(*layers).properties(width=WIDTH, height=HEIGHT).interactive())


def save(chart: dict[str, Any], path: Path, format: str) -> None:
    """Write a chart as ``svg`` or ``png``."""
    import vl_convert

    if format == "svg":
        atomic.write_text(path, vl_convert.vegalite_to_svg(chart))
    else:
        atomic.write_bytes(path, vl_convert.vegalite_to_png(chart, scale=2))


def _ranges(
    machine: Ceilings, bounds: Sequence[Bound], achieved: Sequence[Achieved]
) -> tuple[list[float], list[float]]:
    """Return axis ranges that include every ridge, ceiling and point, with some margin."""
    assert machine.memory is not None
    peaks = list(machine.compute.values()) or [machine.memory]
    points = [point for bound in bounds for point in bound.points if point.ops]
    slopes = [slope for slope in (machine.memory, machine.network) if slope]
    ridges = [peak / slope for peak in peaks for slope in slopes]
    intensities = [point.intensity for point in points] or [1.0]
    network = [bound.ops / bound.gradient_bytes for bound in bounds if bound.network_s]
    x_low, last = min(intensities + ridges) / 3, max(ridges + intensities + network)
    # Leave room at the right for the names of the ceilings.
    x_high = max(last * 6, last * (last / x_low) ** 0.35)
    flops = [point.attainable for point in points] or [machine.memory]
    flops += [star.flops for star in achieved if star.flops]
    return [x_low, x_high], [min(flops) / 3, max(peaks) * 2.5]


def _roof_rows(machine: Ceilings, x_range: list[float]) -> list[dict[str, Any]]:
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
    machine: Ceilings, x_range: list[float], layout: LabelLayout, field: str
) -> list[dict[str, Any]]:
    """Return one label per ceiling at its right end, moved up where labels would overlap."""
    assert machine.memory is not None
    rows: list[dict[str, Any]] = []
    above = 0.0
    for (benchmark, precision), peak in sorted(machine.compute.items(), key=lambda item: item[1]):
        up = max(layout.pixel(x_range[1], peak)[1], above)
        above = up + 14
        figure = quantity(peak, "FLOPS")
        short = f"{precision} {figure}"
        label = f"{precision} {NAMES[benchmark]} {figure}" if field == "label" else short
        if field == "label":
            layout.occupy(Box(WIDTH - 7 * len(label), up, WIDTH, above + 3))
            left, line = layout.pixel(peak / machine.memory, peak)
            layout.occupy(Box(left, line - 1, WIDTH, line + 1))
        height = layout.value(WIDTH, up)[1]
        rows.append(
            {"intensity": x_range[1], "flops": height, "precision": precision, field: label}
        )
    return rows


def _slopes(
    machine: Ceilings,
    x_range: list[float],
    y_range: list[float],
    x: Any,
    y: Any,
    layout: LabelLayout,
) -> Any:
    """Return the memory slope and, if measured, the network slope, with labels."""
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
        left, up = layout.pixel(low, slope * low)
        layout.occupy(Box(left, up, left + 20 + 7 * len(label), up + 18))
    line = (
        alt.Chart(data(lines))
        .mark_line(color="#666", strokeWidth=1.5)
        .encode(
            x=x,
            y=y,
            detail=alt.Detail("name:N"),
            strokeDash=alt.condition(
                "datum.name == 'all-reduce'", alt.value([2, 3]), alt.value([1, 0])
            ),
        )
    )
    text = (
        alt.Chart(data(labels))
        .mark_text(align="left", baseline="bottom", dx=20, dy=-3, color="#555", fontSize=11)
        .encode(x=x, y=y, text=alt.Text("label:N"))
    )
    return line + text
