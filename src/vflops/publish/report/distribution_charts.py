"""Charts of how many training runs are distributed; altair is imported when needed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from vflops.publish.pages.chart_style import SERIES, apply_style, data, tooltips
from vflops.publish.report.training_charts import WIDTH
from vflops.record.readout.trained_job import TrainedJob
from vflops.results.many_trainings import Distribution, distributions
from vflops.results.score.score_file import TrainingScore

_BINS = 40
_PER_ROW, _GAP, _HEIGHT = 2, 70, 120
_MAX_EPOCHS = 200


def histograms(trainings: Sequence[TrainingScore]) -> dict[str, Any] | None:
    """Return one histogram per figure of the training jobs; None without any figure."""
    import altair as alt

    charts = [_histogram(figure) for figure in distributions(trainings)]
    return apply_style(alt.concat(*charts, columns=_PER_ROW)) if charts else None


def _histogram(figure: Distribution) -> Any:
    import altair as alt

    low, high = figure.quantile(0), figure.quantile(1)
    width = (high - low) / _BINS
    counts = [0] * _BINS if width else [len(figure.values)]
    for value, _ in figure.values if width else ():
        counts[min(int((value - low) / width), _BINS - 1)] += 1
    width = width or abs(low) / _BINS or 1.0
    rows = [
        {
            "from": low + number * width,
            "to": low + (number + 1) * width,
            "jobs": jobs,
            "range": f"{figure.text(low + number * width)} to "
            f"{figure.text(low + (number + 1) * width)}",
        }
        for number, jobs in enumerate(counts)
        if jobs
    ]
    unit = f", {figure.unit}" if figure.unit in ("s", "W") else ""
    x = alt.X("from:Q").title(f"{figure.label}{unit}").scale(zero=False)
    bars = (
        alt.Chart(data(rows))
        .mark_bar(color=SERIES[0])
        .encode(
            x=x.axis(format="~s" if high >= 1000 else ".3~g", grid=False, tickCount=6),
            x2=alt.X2("to:Q"),
            y=alt.Y("jobs:Q").title("jobs").axis(tickMinStep=1, tickCount=4, format="~s"),
            y2=alt.datum(0),
            tooltip=tooltips("range:N", "jobs:Q"),
        )
    )
    return bars.properties(width=(WIDTH - (_PER_ROW - 1) * _GAP) // _PER_ROW, height=_HEIGHT)


def quality(jobs: Sequence[TrainedJob]) -> dict[str, Any] | None:
    """Return a chart of the median quality over epochs, with the ranges of most jobs and the
    target; None without evaluations."""
    import altair as alt

    goal = jobs[0].record.goal
    rows = _quality_bands(jobs)
    if not rows:
        return None
    title = goal.quality + (", lower is better" if goal.better == "lower" else "")
    top = 1.1 * max(goal.target, *(row["95 %"] for row in rows))
    scale = alt.Scale(domain=[0, top or 1.0], nice=False)

    def y(field: str) -> Any:
        return alt.Y(f"{field}:Q").scale(scale).title(title)

    x = alt.X("epoch:Q").title("epoch").scale(domainMin=0).axis(grid=False, tickMinStep=1)
    tooltip = tooltips("epoch:Q", *(f"{name}:Q" for name in (*_BANDS, "jobs")))
    base = alt.Chart(data(rows)).encode(x=x, tooltip=tooltip)
    most = base.mark_area(opacity=0.2, color=SERIES[0]).encode(y=y("5 %"), y2=alt.Y2("95 %:Q"))
    half = base.mark_area(opacity=0.35, color=SERIES[0]).encode(y=y("25 %"), y2=alt.Y2("75 %:Q"))
    line = base.mark_line(color=SERIES[0], point={"filled": True, "size": 30}).encode(y=y("median"))
    marks = alt.Chart(data([{"target": goal.target, "label": f"target {goal.target:g}"}]))
    rule = marks.mark_rule(color="#444", strokeDash=[6, 4]).encode(y=y("target"))
    label = marks.mark_text(align="left", dx=6, dy=-8, color="#444").encode(
        y=y("target"), x=alt.value(0), text=alt.Text("label:N")
    )
    chart = (most + half + line + rule + label).properties(width=WIDTH, height=240)
    return apply_style(chart)


_BANDS = {"5 %": 0.05, "25 %": 0.25, "median": 0.5, "75 %": 0.75, "95 %": 0.95}


def _quality_bands(jobs: Sequence[TrainedJob]) -> list[dict[str, float]]:
    """Return quantiles of the quality at each epoch at which at least half of the jobs have one."""
    by_epoch: dict[float, list[float]] = {}
    for job in jobs:
        for timed in job.evaluations:
            by_epoch.setdefault(timed.evaluated.epoch, []).append(timed.evaluated.quality)
    common = sorted(epoch for epoch, values in by_epoch.items() if 2 * len(values) >= len(jobs))
    every = -(-len(common) // _MAX_EPOCHS) or 1
    rows = []
    for epoch in common[every - 1 :: every]:
        values = sorted(by_epoch[epoch])
        row = {name: values[round(share * (len(values) - 1))] for name, share in _BANDS.items()}
        rows.append({"epoch": epoch, "jobs": float(len(values)), **row})
    return rows
