"""The roofline chart; altair is imported when needed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vflops.publish.pages.chart_style import COLOURS, apply_style, data, tooltips
from vflops.publish.pages.label_layout import Box, LabelLayout, powers_of_ten, text_width
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
_PHONE_WIDTH = 280
"""The width of the plot on a phone of 400 pixels, in which labels are placed separately."""
_FONT = 11
_LABEL: dict[str, Any] = {"baseline": "bottom", "fontSize": _FONT}
_FARTHEST = 25
"""The largest distance of a label from its line, in pixels."""
_ALONG = [share / 20 for share in range(20)]
"""Where along a slope its label may begin."""
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
    wide, narrow = (
        LabelLayout((x_range[0], x_range[1]), (y_range[0], y_range[1]), (width, HEIGHT))
        for width in (WIDTH, _PHONE_WIDTH)
    )
    slopes = _slope_ends(machine, x_range, y_range)
    labels = []
    for layout, field, room in ((wide, "label", WIDE), (narrow, "short", NARROW)):
        for ends in slopes.values():
            layout.occupy_line(*ends)
        for peak in machine.compute.values():
            layout.occupy_line((peak / machine.memory, peak), (x_range[1], peak))
        for point in achieved:
            layout.keep_free(point.intensity, point.flops, 8)
            layout.keep_free(point.intensity, point.most, 6)
        roof_names = alt.Chart(data(_roof_labels(machine, layout, field)))
        slope_names = alt.Chart(data(_slope_labels(machine, slopes, layout, field)))
        labels += texts(
            roof_names.encode(x=x, y=y, color=colour), field, room, **_LABEL, align="right"
        )
        labels += texts(
            slope_names.encode(x=x, y=y), field, room, **_LABEL, align="left", color="#555"
        )
    layers = [*labels, _slopes(slopes, x, y), lines]
    if achieved:
        layers.append(achieved_layer(achieved, x, y, wide, narrow))
    if bounds:
        layers.append(points_layer(bounds, x, y, wide))
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


def _roof_labels(machine: Ceilings, layout: LabelLayout, field: str) -> list[dict[str, Any]]:
    """Return a label per ceiling, above or below its line, if it has room between the others.

    Matrix products come first.
    """
    assert machine.memory is not None
    rows: list[dict[str, Any]] = []
    for benchmark, precision in sorted(machine.compute, key=lambda key: key[0] != "gemm"):
        peak = machine.compute[benchmark, precision]
        name = f" {NAMES[benchmark]}" if field == "label" else ""
        label = f"{precision}{name} {quantity(peak, 'FLOPS')}"
        width, line = text_width(label, _FONT), layout.pixel(1, peak)[1]
        ridge, end = layout.pixel(peak / machine.memory, peak)[0], layout.size[0] - 6.0
        starts = [end - width]
        while starts[-1] - width - 12 > ridge:
            starts.append(starts[-1] - width - 12)
        box = layout.first_free(
            Box(left, bottom, left + width, bottom + _FONT)
            for distance in range(3, _FARTHEST, 7)
            for bottom in (line + distance, line - distance - _FONT)
            for left in starts
        )
        if box is not None:
            intensity, flops = layout.value(box.right, box.bottom)
            row = {"intensity": intensity, "flops": flops, "precision": precision}
            rows.append({**row, field: label})
    return rows


def _slope_ends(
    machine: Ceilings, x_range: list[float], y_range: list[float]
) -> dict[str, tuple[tuple[float, float], tuple[float, float]]]:
    """Return both ends of the memory slope and, if measured, of the network slope."""
    top = max(machine.compute.values(), default=y_range[1])
    ends = {}
    for name, slope in (("memory", machine.memory), ("all-reduce", machine.network)):
        if slope:
            low, high = max(x_range[0], y_range[0] / slope), min(top / slope, x_range[1])
            ends[name] = ((low, slope * low), (high, slope * high))
    return ends


def _slope_labels(
    machine: Ceilings,
    slopes: dict[str, tuple[tuple[float, float], tuple[float, float]]],
    layout: LabelLayout,
    field: str,
) -> list[dict[str, Any]]:
    """Return one label per slope, below its line or above it."""
    rows = []
    for name, (low, high) in slopes.items():
        case = f" ({machine.network_case})" if name == "all-reduce" and field == "label" else ""
        label = f"{name} {quantity(low[1] / low[0], 'B/s')}{case}"
        width = text_width(label, _FONT)
        (x1, y1), (x2, y2) = layout.pixel(*low), layout.pixel(*high)
        points = [(x1 + share * (x2 - x1), y1 + share * (y2 - y1)) for share in _ALONG]
        below = [Box(x + 4, y - _FONT - 4, x + 4 + width, y - 4) for x, y in points]
        above = [Box(x - 4 - width, y + 4, x - 4, y + 4 + _FONT) for x, y in points]
        box = layout.first_free([*below, *above])
        if box is not None:
            intensity, flops = layout.value(box.left, box.bottom)
            rows.append({"intensity": intensity, "flops": flops, field: label})
    return rows


def _slopes(
    slopes: dict[str, tuple[tuple[float, float], tuple[float, float]]], x: Any, y: Any
) -> Any:
    """Return the memory slope and, if measured, the network slope."""
    import altair as alt

    rows = [
        {"name": name, "intensity": intensity, "flops": flops}
        for name, ends in slopes.items()
        for intensity, flops in ends
    ]
    dashes = alt.condition("datum.name == 'all-reduce'", alt.value([2, 3]), alt.value([1, 0]))
    return (
        alt.Chart(data(rows))
        .mark_line(color="#666", strokeWidth=1.5)
        .encode(x=x, y=y, detail=alt.Detail("name:N"), strokeDash=dashes)
    )
