"""The page that shows the same experiment with several workloads side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from vflops.publish.pages.page import chart_library, render
from vflops.record.files import atomic
from vflops.studies.scale import scale_charts, usage_view
from vflops.studies.scale.axis import Axis
from vflops.studies.scale.ensembles import Ensembles
from vflops.studies.scale.kernel_shares import kernel_chart
from vflops.studies.scale.point_figures import EnsembleFigures
from vflops.studies.scale.scale_charts import (
    MEASURED,
    PERCENT,
    SI,
    Curve,
    HorizontalAxis,
    Moment,
    Row,
)
from vflops.studies.scale.scale_result import Scale


def write_joint_page(experiments: Sequence[tuple[Scale, Axis]], path: Path) -> None:
    """Write the page; each workload has a page of its own in a folder next to it."""
    first, workloads = experiments[0][1], [scale.workload for scale, _ in experiments]
    page = render(
        "scales.html",
        title=f"{first.title}: {', '.join(workloads)}",
        experiments=experiments,
        paper_figure=first.paper_figure,
        curves=joint_curves(experiments),
        library=chart_library(),
    )
    atomic.write_text(path, page)


def joint_curves(experiments: Sequence[tuple[Scale, Axis]]) -> list[Curve]:
    """Return the charts that compare the workloads; those without values are left out."""
    scales = [scale for scale, _ in experiments]
    kernels = kernel_chart(scales)
    curves = [
        Curve("kernels", "Shares of kernel time", kernels) if kernels else None,
        *(_speed_and_quality(experiments) if not kernels else ()),
        _lines(experiments, "efficiency", "Efficiency", _efficiency, form=PERCENT),
        _lines(
            experiments,
            "bandwidth",
            "Bandwidth within and between nodes, B/s",
            usage_view.total_b_per_s,
            form=SI,
        ),
        _lines(experiments, "sent", "Sent by the ranks, B/s", usage_view.sent_b_per_s, form=SI),
        _utilisation(scales),
    ]
    return [curve for curve in curves if curve]


def _speed_and_quality(experiments: Sequence[tuple[Scale, Axis]]) -> list[Curve | None]:
    """Return FLOPS, VFLOPS and the quality factor; qualities themselves have different measures."""
    has_open = any(scale.open_note for scale, _ in experiments)
    valid = "VFLOPS (some are open)" if has_open else "VFLOPS"
    return [
        _lines(experiments, "flops", "FLOPS", lambda figures: figures.flops, form=SI),
        _lines(experiments, "vflops", valid, lambda figures: figures.vflops, form=SI),
        _lines(
            experiments,
            "factor",
            "Quality factor: (quality / target)ⁿ",
            lambda figures: figures.penalty,
            form="~g",
        ),
    ]


def _lines(
    experiments: Sequence[tuple[Scale, Axis]],
    id: str,
    title: str,
    value: Callable[[EnsembleFigures], float | None],
    *,
    form: str,
) -> Curve | None:
    """Return a chart of one figure of all workloads; None without values."""
    rows: list[Row] = []
    ticks: set[int] = set()
    name = ""
    for scale, axis in experiments:
        if isinstance(axis, Ensembles):
            across = axis.across(scale)
            name, ticks = across.title, ticks | set(across.ticks or ())
            rows += [
                row._replace(series=_series(scale, row.series))
                for row in axis.rows(scale, value)
                if row.value is not None
            ]
    if not rows:
        return None
    drawn = scale_charts.lines(
        rows, HorizontalAxis(name, tuple(sorted(ticks)) or None), title, form=form, zero=True
    )
    return Curve(id, title, drawn)


def _series(scale: Scale, series: str) -> str:
    return scale.workload if series == MEASURED else f"{scale.workload}: {series}"


def _efficiency(figures: EnsembleFigures) -> float | None:
    return figures.efficiency


def _utilisation(scales: Sequence[Scale]) -> Curve | None:
    """Return the utilisation of the largest point of each workload over time."""
    on_gpu = any(usage_view.has_accelerators(scale) for scale in scales)
    courses: dict[str, list[Moment]] = {}
    for scale in scales:
        used = usage_view.used(scale)
        if used:
            point, _, usage = max(used, key=lambda each: each[0].size.slots)
            course = usage.course("utilisation" if on_gpu else "processors")
            name = f"{scale.workload}, {point.jobs} × {point.ranks}"
            if course and len(course.points) > 1:
                courses[name] = [Moment(*pair, True) for pair in course.points]
    drawn = scale_charts.over_time(courses, "busy, %", usage_view.SINCE)
    device = "Accelerators" if on_gpu else "Processors (no accelerator was used)"
    return Curve("utilisation", f"{device} over time, largest point", drawn) if drawn else None
