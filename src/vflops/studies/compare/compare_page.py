"""``compare.html``: charts with the curves of all sides, and the tables of a comparison."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vflops.publish.pages.chart_style import SERIES, apply_style, data, tooltips
from vflops.publish.pages.page import chart_library, render
from vflops.publish.report import curves
from vflops.publish.report.training_charts import WIDTH
from vflops.record.files import atomic
from vflops.studies.compare import compare_text
from vflops.studies.compare.comparing import Side
from vflops.studies.compare.comparison import Comparison
from vflops.studies.compare.run_view import RunView


@dataclass(frozen=True)
class Overlay:
    """One chart with the curves of all sides."""

    id: str
    title: str
    chart: dict[str, Any]


def write_page(comparison: Comparison, given: Sequence[Side], path: Path) -> None:
    """Write the page; it works offline."""
    first, *others = [side.name for side in comparison.sides]
    page = render(
        "compare.html",
        title=f"{', '.join(others)} against {first}",
        found=comparison,
        words=compare_text,
        overlays=overlays(given),
        library=chart_library(),
    )
    atomic.write_text(path, page)


def overlays(given: Sequence[Side]) -> list[Overlay]:
    """Return the charts of quality and speed over time, for each workload."""
    runs = [run for side in given for run in side.runs]
    trained = {
        job.record.workload: curves.speed_unit(job)
        for run in runs
        for job in run.contents.training_jobs
    }
    searched = dict.fromkeys(search.workload for run in runs for search in run.score.searches)
    wanted = [
        *((name, "quality over time", "quality", _quality) for name in trained),
        *((name, f"{unit} over time", unit, _throughput) for name, unit in trained.items()),
        *((name, "operations per second over time", "OPS", _operations) for name in searched),
    ]
    drawn = []
    for number, (workload, title, unit, lines) in enumerate(wanted):
        chart = _chart(given, workload, unit, lines)
        if chart is not None:
            drawn.append(Overlay(f"overlay-{number}", f"{workload}: {title}", chart))
    return drawn


Lines = list[tuple[str, curves.Points]]
"""The lines of one run, each with a name that is unique in the run, and its points."""


def _quality(run: RunView, workload: str) -> Lines:
    return [
        (str(job.record.job), [(e.time_s, e.evaluated.quality) for e in job.evaluations])
        for job in run.contents.training_jobs
        if job.record.workload == workload
    ]


def _throughput(run: RunView, workload: str) -> Lines:
    return [
        (f"{job.record.job}/{line.attempt}", line.points)
        for job in run.contents.training_jobs
        if job.record.workload == workload
        for line in curves.throughput(job)
    ]


def _operations(run: RunView, workload: str) -> Lines:
    return [
        (str(search.repeat), curves.thin([(m.time_s, m.ops_per_s) for m in search.moments]))
        for search in run.score.searches
        if search.workload == workload
    ]


def _chart(
    given: Sequence[Side], workload: str, unit: str, lines: Callable[[RunView, str], Lines]
) -> dict[str, Any] | None:
    """Return a chart with one line per job in the colour of its side; None if it has no points."""
    import altair as alt

    rows = [
        {"side": side.name, "run": run.id, "line": f"{run.id}/{line}", "time": x, "value": y}
        for side in given
        for run in side.runs
        for line, points in lines(run, workload)
        for x, y in points
    ]
    if not rows:
        return None
    form = "~g" if unit == "quality" else "~s"
    names = [side.name for side in given]
    colours = [SERIES[number % len(SERIES)] for number in range(len(names))]
    chart = (
        alt.Chart(data(rows))
        .mark_line(strokeWidth=2, point={"size": 22}, opacity=0.8)
        .encode(
            x=alt.X("time:Q").title("seconds since the start of the processes").axis(grid=False),
            y=alt.Y("value:Q").scale(zero=unit != "quality").title(unit).axis(format=form),
            color=alt.Color("side:N").scale(domain=names, range=colours).legend(orient="top"),
            detail=alt.Detail("line:N"),
            tooltip=tooltips("side:N", "run:N", "time:Q", "value:Q"),
        )
    )
    return apply_style(chart.properties(width=WIDTH, height=220))
