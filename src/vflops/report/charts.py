"""Charts as Vega-Lite specifications; altair is imported where it draws."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vflops.record import atomic
from vflops.record.measurement import Measurement
from vflops.roofline.analysis import Bound, Roofs
from vflops.units import quantity

COLOURS = {
    "fp64": "#6b4c9a",
    "fp32": "#2f6fb0",
    "tf32": "#1b9e9e",
    "bf16": "#2e8b3d",
    "fp16": "#c77d11",
    "fp8": "#c2333f",
}
NAMES = {"gemm": "matrix product", "convolution": "convolution"}
WIDTH, HEIGHT = 640, 440
_PADDING = {"left": 5, "top": 5, "bottom": 5, "right": 30}  # fonts differ from what was measured
_NETWORK = "all-reduce of the gradients"
_PLAIN_BELOW_ONE = "datum.value < 1 ? format(datum.value, '~g') : format(datum.value, '~s')"
_BINARY = "datum.value >= 1048576 ? datum.value / 1048576 + ' MiB' : datum.value / 1024 + ' KiB'"


def roofline(machine: Roofs, bounds: Sequence[Bound]) -> dict[str, Any]:
    """Ceilings and slopes with the kinds of layers of each model under them."""
    import altair as alt

    assert machine.memory is not None
    x_range, y_range = _ranges(machine, bounds)
    x = alt.X("intensity:Q").scale(type="log", domain=x_range, nice=False)
    x = x.title("operations per byte").axis(labelExpr=_PLAIN_BELOW_ONE, grid=False)
    y = alt.Y("flops:Q").scale(type="log", domain=y_range, nice=False)
    y = y.title("FLOPS").axis(format="~s", gridOpacity=0.4)
    colour = (
        alt.Color("precision:N")
        .scale(domain=list(COLOURS), range=list(COLOURS.values()))
        .legend(None)
    )
    roofs = _rows(_roof_rows(machine, x_range))
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
    labels = (
        alt.Chart(_rows(_roof_labels(machine, x_range, y_range)))
        .mark_text(align="left", baseline="middle", fontSize=11, dx=8, clip=False)
        .encode(x=x, y=y, text="label:N", color=colour)
    )
    layers = [_slopes(machine, x_range, y_range, x, y), lines, labels]
    if bounds:
        layers.append(_points(bounds, y_range, x, y))
    chart = (
        alt.layer(*layers).properties(width=WIDTH, height=HEIGHT, padding=_PADDING).interactive()
    )
    return _finished(chart)


def shape_search(measurements: Sequence[Measurement]) -> dict[str, Any] | None:
    """Speed of every matrix product that the search tried, by its work; None without any."""
    import altair as alt

    rows = [
        {
            "precision": item.precision,
            "work": 2 * _integer(trial.setting, "m", "n", "k"),
            "flops": trial.value,
            "shape": " ".join(f"{key}={value}" for key, value in trial.setting.items()),
            "speed": quantity(trial.value, "FLOPS"),
        }
        for item in measurements
        if item.benchmark == "gemm"
        for trial in item.tried
    ]
    if not rows:
        return None
    chart = (
        alt.Chart(_rows(rows))
        .mark_point(filled=True, size=45, opacity=0.75)
        .encode(
            x=alt.X("work:Q")
            .scale(type="log")
            .title("operations of one product")
            .axis(format="~s"),
            y=alt.Y("flops:Q").title("FLOPS").axis(format="~s"),
            color=alt.Color("precision:N")
            .scale(domain=list(COLOURS), range=list(COLOURS.values()))
            .legend(orient="top", title=None, values=sorted({str(r["precision"]) for r in rows})),
            tooltip=["precision:N", "shape:N", "speed:N"],
        )
        .properties(width=820, height=260)
    )
    return _finished(chart)


def message_sizes(measurements: Sequence[Measurement]) -> dict[str, Any] | None:
    """All-reduce bus bandwidth over the size of the message; None without any."""
    import altair as alt

    rows: list[dict[str, Any]] = [
        {
            "case": item.case,
            "bytes": _integer(trial.setting, "size_bytes"),
            "bandwidth": trial.value,
            "speed": quantity(trial.value, "B/s"),
        }
        for item in measurements
        if item.benchmark == "all-reduce"
        for trial in item.tried
    ]
    if not rows:
        return None
    ticks = sorted({row["bytes"] for row in rows})[::2]
    chart = (
        alt.Chart(_rows(rows))
        .mark_line(point=True, color="#2f6fb0")
        .encode(
            x=alt.X("bytes:Q")
            .scale(type="log", base=2)
            .title("message")
            .axis(values=ticks, labelExpr=_BINARY),
            y=alt.Y("bandwidth:Q").title("bus bandwidth, B/s").axis(format="~s"),
            detail="case:N",
            tooltip=["case:N", "bytes:Q", "speed:N"],
        )
        .properties(width=820, height=220)
    )
    return _finished(chart)


def save(chart: dict[str, Any], path: Path, format: str) -> None:
    """Write a chart as ``svg`` or ``png`` for a paper."""
    import vl_convert

    if format == "svg":
        atomic.write_text(path, vl_convert.vegalite_to_svg(chart))
    else:
        atomic.write_bytes(path, vl_convert.vegalite_to_png(chart, scale=2))


def _finished(chart: Any) -> dict[str, Any]:
    font = "system-ui, sans-serif"
    styled = chart.configure(font=font, background="white").configure_view(stroke="#ccc")
    specification: dict[str, Any] = styled.configure_axis(labelColor="#444").to_dict()
    return specification


def _rows(rows: list[dict[str, Any]]) -> Any:
    import altair as alt

    return alt.Data(values=rows)


def _integer(setting: dict[str, int | str], *keys: str) -> int:
    product = 1
    for key in keys:
        product *= int(setting.get(key, 1))
    return product


def _ranges(machine: Roofs, bounds: Sequence[Bound]) -> tuple[list[float], list[float]]:
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
    """One label a ceiling beside the plot, moved apart where they would overlap."""
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
        alt.Chart(_rows(lines))
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
        alt.Chart(_rows(labels))
        .mark_text(align="left", baseline="bottom", dx=6, dy=-6, color="#555", fontSize=11)
        .encode(x=x, y=y, text="label:N")
    )
    return line + text


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
    base = alt.Chart(_rows(rows)).encode(x=x, y=y)
    tooltip = ["what:N", "attainable:N", "bound by:N", "share:N"]
    dots = base.mark_point(filled=True, size=80, color="#111").encode(
        tooltip=tooltip,
        shape=alt.condition(
            f"datum.label == '{_NETWORK}'", alt.value("diamond"), alt.value("circle")
        ),
    )
    labels = alt.Chart(_rows(rows)).encode(x=x, y=alt.Y("label_flops:Q"), text="label:N")
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
