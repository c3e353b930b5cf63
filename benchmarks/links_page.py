"""The page of ``benchmarks/links.py``: curves, and every point with its prediction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.links_result import Links, Measured, predicted, record
from vflops.publish.pages.chart_style import SERIES, apply_style, data
from vflops.publish.pages.page import chart_library, render
from vflops.publish.report.training_charts import WIDTH
from vflops.record.files import atomic
from vflops.studies.predict.predict_curves import measured_curve
from vflops.studies.predict.validation import PointComparison

_MARK = "#444"
UPTO = 1024
"""The most hosts of drawn predictions."""


@dataclass(frozen=True)
class Curve:
    """One chart and its explanation."""

    id: str
    title: str
    note: str
    chart: dict[str, Any]


def write_page(points: Sequence[Measured], links: Links, path: Path) -> None:
    """Write the page, which needs no network."""
    beside = predicted(points, links)
    heads = (
        "point",
        "hosts",
        "links",
        "ms per step",
        "predicted",
        "error",
        "samples/s",
        "MB per step",
        "of counted",
    )
    page = render(
        "links.html",
        folder=Path(__file__).parent / "templates",
        title="Parallel training over real links",
        story="Ranks on separate hosts with shaped links: what an exchange of gradients costs, "
        "what bagging saves, and what compression gains.",
        curves=_curves(points, beside, links),
        heads=heads,
        rows=[_row(point, beside.get(index)) for index, point in enumerate(points)],
        note="± is half of the range between the fastest and the slowest round. Predicted: the "
        "step of as many independent models, plus the exchange by the formulas of vflops "
        "predict, with bandwidth and latency of plain exchanges of as many bytes on the same "
        "links, plus the time of the codec alone. Nothing is taken from the predicted "
        "training itself. Buckets that are full before the end of the backward pass overlap "
        "with it. MB per step: bytes sent by all interfaces; of counted: relative to the "
        "bytes that the ranks counted.",
        library=chart_library(),
    )
    atomic.write_text(path, page)


def _curves(
    points: Sequence[Measured], beside: Mapping[int, PointComparison], links: Links
) -> list[Curve]:
    curves = []
    for name, (title, note) in _FIGURES.items():
        indices = [index for index, point in enumerate(points) if _in(name, point)]
        if indices:
            chart = _beside(points, beside, indices)
            curves.append(Curve(name, title, note, chart))
    paying = _paying(points, links)
    return [*curves, paying] if paying else curves


def _in(figure: str, point: Measured) -> bool:
    """Whether a chart shows the point; that of compression also shows fp32 on the same link."""
    plain = point.precision == "fp32" and point.wires == "1 Gb/s" and not point.bagging
    return point.figure == figure or (figure == "compression" and plain and point.hosts > 1)


def _beside(
    points: Sequence[Measured], beside: Mapping[int, PointComparison], indices: Sequence[int]
) -> dict[str, Any]:
    """Return one row per point: a dot with the range of rounds, and a predicted diamond."""
    import altair as alt

    rows = []
    for index in indices:
        point = points[index]
        row = {
            "place": f"{_hosts(point.hosts)}, {_series(point, indices, points)}",
            "series": _series(point, indices, points),
            "least": 1e3 * min(point.rounds_s),
            "most": 1e3 * max(point.rounds_s),
        }
        rows.append({**row, "value": 1e3 * point.step_s, "what": "measured"})
        if index in beside:
            rows.append({**row, "value": 1e3 * beside[index].predicted_s, "what": "predicted"})
    places = list(dict.fromkeys(str(row["place"]) for row in rows))
    names = list(dict.fromkeys(str(row["series"]) for row in rows))
    colours = [SERIES[number % len(SERIES)] for number in range(len(names))]
    y = alt.Y("place:N").sort(places).title(None).axis(labelLimit=260, labelPadding=6)
    x = alt.X("value:Q").title("ms per step").scale(zero=True).axis(tickCount=6)
    colour = alt.Color("series:N").scale(domain=names, range=colours).legend(None)
    kinds = {"measured": "circle", "predicted": "diamond"}
    shape = alt.Shape("what:N").scale(domain=list(kinds), range=list(kinds.values()))
    below = alt.Legend(orient="bottom", title=None, symbolFillColor=_MARK, symbolStrokeColor=_MARK)
    base = alt.Chart(data(rows)).encode(y=y, tooltip=["place:N", "what:N", "value:Q"])
    span = base.transform_filter("datum.what == 'measured'").mark_rule(strokeWidth=6, opacity=0.25)
    dots = base.mark_point(size=80, filled=True, opacity=0.9)
    layers = [
        span.encode(x=alt.X("least:Q"), x2="most:Q", color=colour),
        dots.encode(x=x, color=colour, shape=shape.legend(below)),
    ]
    return apply_style(alt.layer(*layers).properties(width=WIDTH - 60, height=26 * len(places)))


def _hosts(count: int) -> str:
    return f"{count} host{'s' if count > 1 else ''}"


def _series(point: Measured, indices: Sequence[int], points: Sequence[Measured]) -> str:
    """Return the name of a row: what distinguishes it within its chart."""
    compressed = any(points[index].figure == "compression" for index in indices)
    alone = point.series == "one host"
    return "one model" if alone else point.precision if compressed else point.series


def _paying(points: Sequence[Measured], links: Links) -> Curve | None:
    """Return the efficiency over hosts, and where half of a step is waiting."""
    measured = record(points, links).efficiencies(Path("links.json"))
    scales = [1 << power for power in range(UPTO.bit_length())]
    curve = measured_curve(measured, scales, across="hosts")
    if curve is None:
        return None
    return Curve(
        "paying",
        "Where each exchange algorithm stops paying off",
        "Efficiency: the step of independent models over the step with the exchange. Lines are "
        "predicted from the inputs of two hosts, points were measured; with four hosts, two share "
        "cores. Crosses with numbers: the most hosts that work at least half of the time.",
        curve.chart,
    )


_FIGURES = {
    "bagging": (
        "Bagging against data parallelism",
        "One model per host against one model on all hosts (HPC AI500 V3.0, figure 9).",
    ),
    "compression": (
        "Compressed gradients",
        "Data parallelism over 1 Gb/s, gradients sent in each precision (V2.0, figure 4).",
    ),
    "modes": (
        "Flat, hierarchical, torus",
        "Four hosts on two switches, with faster links between near hosts.",
    ),
}


def _row(point: Measured, beside: PointComparison | None) -> tuple[str, ...]:
    return (
        point.series,
        str(point.hosts),
        point.wires,
        f"{point.step_s * 1e3:.0f} ± {point.spread * point.step_s * 1e3:.0f}",
        f"{beside.predicted_s * 1e3:.0f}" if beside else "",
        f"{beside.error:+.0%}" if beside else "",
        f"{point.samples_per_s:.1f}",
        f"{point.wire_bytes / 1e6:.2f}",
        f"{point.wire_bytes / point.counted_bytes:.1%}" if point.counted_bytes else "",
    )
