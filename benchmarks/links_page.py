"""The page of ``benchmarks/links.py``: curves, every point, and what was predicted beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vflops.predict.against import Compared, MeasuredPoint, against
from vflops.predict.inputs import validated
from vflops.record import atomic
from vflops.report.page import chart_library, render
from vflops.scale.charts import Across, Row, lines

if TYPE_CHECKING:
    from links import Measured

Links = Mapping[str, Mapping[str, float]]


@dataclass(frozen=True)
class Curve:
    """One chart, and what to see in it."""

    id: str
    title: str
    note: str
    chart: dict[str, Any]


def write_page(points: Sequence[Measured], links: Links, path: Path) -> None:
    """Write the page: one file that needs no network."""
    beside = predicted(points, links)
    heads = (
        "point",
        "hosts",
        "links",
        "ms a step",
        "predicted",
        "error",
        "samples/s",
        "MB a step",
        "counted",
    )
    page = render(
        "links.html",
        title="Parallel training over real links",
        story="Ranks on hosts of their own, a core each, behind links that are shaped: what an "
        "exchange of gradients costs there, what bagging saves, and what compression does.",
        curves=_curves(points),
        heads=heads,
        rows=[_row(point, beside.get(index)) for index, point in enumerate(points)],
        note="Predicted: the step of as many models side by side, which exchange nothing, and the "
        "exchange by the formulas of vflops predict, with bandwidth and latency of a plain "
        "all-reduce on the same links. Nothing is hidden behind the backward pass: a host has one "
        "core. What int8 and PowerSGD compute to send less is not in the formulas. MB a step: what "
        "all interfaces sent.",
        library=chart_library(),
    )
    atomic.write_text(path, page)


def predicted(points: Sequence[Measured], links: Links) -> dict[int, Compared]:
    """By the number of the point; of those that exchange something the model knows."""
    alone = {each.hosts: each.step_s for each in points if each.bagging or each.hosts == 1}
    found: dict[int, Compared] = {}
    for index, point in enumerate(points):
        link = links.get(f"{point.hosts}, {point.wires}")
        if point.bagging or link is None or point.hosts not in alone:
            continue
        base: dict[str, dict[str, Any]] = {
            "step": {"time_s": alone[point.hosts], "batch": 16},
            "model": {"gradient_bytes": 4 * point.parameters},
            "node": {"accelerators": 1},
            "link": dict(link),
            # A host has one core: who sends and receives does not compute meanwhile.
            "exchange": {"mode": "ring", "overlap": 0.0, "buckets": 1},
        }
        if point.figure == "compression" and point.series != "powersgd":
            base["exchange"]["precision"] = point.series
        elif point.figure == "compression":
            base["exchange"]["share"] = point.counted_bytes / (
                8 * (point.hosts - 1) * point.parameters
            )
        elif point.figure == "modes" and point.series != "all-reduce":
            continue
        measured = MeasuredPoint(point.hosts, point.step_s, name=point.series)
        (found[index],) = against([measured], validated(base))
    return found


def _curves(points: Sequence[Measured]) -> list[Curve]:
    of = {name: [each for each in points if each.figure == name] for name in _FIGURES}
    found = []
    for name, (title, note) in _FIGURES.items():
        if not of[name]:
            continue
        if name == "modes":
            rows = [Row(each.series, each.step_s * 1e3) for each in of[name]]
            chart = lines(rows, Across("way to exchange"), "ms a step")
        else:
            ticks = tuple(sorted({each.hosts for each in of[name]}))
            rows = [Row(each.hosts, each.samples_per_s, each.series) for each in of[name]]
            chart = lines(rows, Across("hosts", ticks), "samples/s of all hosts")
        found.append(Curve(name, title, note, chart))
    return found


_FIGURES = {
    "bagging": (
        "Bagging against data parallelism",
        "A model on each host against one model on all of them (HPC AI500 V3.0, figure 9).",
    ),
    "compression": (
        "Compressed gradients",
        "Data parallelism over 1 Gb/s, gradients sent in each precision (V2.0, figure 4).",
    ),
    "modes": (
        "Flat, by levels, on a torus",
        "Four hosts on two switches: near ones joined faster than far ones.",
    ),
}


def _row(point: Measured, beside: Compared | None) -> tuple[str, ...]:
    return (
        f"{point.figure}: {point.series}",
        str(point.hosts),
        point.wires,
        f"{point.step_s * 1e3:.0f}",
        f"{beside.predicted_s * 1e3:.0f}" if beside else "",
        f"{beside.error:+.0%}" if beside else "",
        f"{point.samples_per_s:.1f}",
        f"{point.wire_bytes / 1e6:.2f}",
        f"{point.counted_bytes / 1e6:.2f}",
    )
