"""Charts of training over time with one line per seed; altair is imported when needed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from vflops.metrics.summation import sum_in_order
from vflops.publish.pages.chart_style import SERIES, apply_style, data, tooltips
from vflops.publish.report.curves import Line, Points
from vflops.record.formats.job_events import PHASES, KernelTime
from vflops.results.score.figure_text import rate
from vflops.units import percent, quantity, seconds

WIDTH = 800
PHASE_COLOURS = ("#9aa3af", "#6b4c9a", "#c77d11", "#2f6fb0", "#2e8b3d", "#1b9e9e")
"""The colours of start-up, compilation, data, training, evaluation and checkpointing."""
_LABEL_WIDTH = 90
"""The width of a label in pixels; narrower bars get none."""
_SECONDS = "seconds since the start of the processes"
AXIS_EXTENT = 56  # so that the time axes of charts below each other align


@dataclass(frozen=True)
class Course:
    """The curves of one training run."""

    seed: int
    loss: Points
    """The training loss, by epoch."""
    validation_loss: Points
    """The loss of evaluations, by epoch; empty if the quality does not follow from it."""
    quality: Points
    """By epoch."""
    reached: tuple[float, float, float] | None
    """Epoch, quality and seconds at which the target was reached."""
    throughput: list[Line]
    """In ``speed_unit``."""
    speed_unit: str
    power: list[Line]
    utilisation: list[Line]
    traffic: list[Line]
    phases: dict[str, float]

    @property
    def name(self) -> str:
        """The name in a legend."""
        return f"seed {self.seed}"


def throughput(courses: Sequence[Course]) -> dict[str, Any] | None:
    """Return a chart of samples or tokens per second over time; None with too few log entries."""
    import altair as alt

    rows: list[dict[str, Any]] = [
        {
            "seed": course.name,
            "line": f"{course.seed}/{line.attempt}",
            "time": x,
            "rate": y,
            "speed": rate(y, course.speed_unit),
        }
        for course in courses
        for line in course.throughput
        for x, y in line.points
    ]
    if not rows:
        return None
    y = (
        alt.Y("rate:Q")
        .scale(scale_from_zero(row["rate"] for row in rows))
        .title(f"speed, {courses[0].speed_unit}")
    )
    chart = lines(rows, few=len(rows) < 60 * len(courses)).encode(
        x=_time_axis(courses),
        y=y.axis(format="~s", minExtent=AXIS_EXTENT, tickCount=5),
        detail=alt.Detail("line:N"),
        color=seed_colours(courses),
        tooltip=tooltips("seed:N", "time:Q", "speed:N"),
    )
    return apply_style(chart.properties(width=WIDTH, height=160))


def power(courses: Sequence[Course]) -> dict[str, Any] | None:
    """Return a chart of the power over time by part of the machine; None if not measured."""
    return _sensor_chart(courses, [course.power for course in courses], "power, W", "W", 150)


def utilisation(courses: Sequence[Course]) -> dict[str, Any] | None:
    """Return a chart of the utilisation of accelerators and processors over time."""
    return _sensor_chart(courses, [course.utilisation for course in courses], "busy, %", "%", 110)


def traffic(courses: Sequence[Course]) -> dict[str, Any] | None:
    """Return a chart of network and storage traffic over time."""
    return _sensor_chart(courses, [course.traffic for course in courses], "B/s", "B/s", 110)


def budget(courses: Sequence[Course]) -> dict[str, Any] | None:
    """Return a chart of the wall time by phase, one bar per seed; None without any time."""
    import altair as alt

    longest_s = max(sum_in_order(course.phases.values()) for course in courses)
    if not longest_s:
        return None
    # With one bar, the legend has room for the figures, also of phases too short for a label.
    names = {phase: _phase_name(phase, courses) for phase in PHASES}
    rows: list[dict[str, Any]] = []
    for course in courses:
        start_s, wall_s = 0.0, sum_in_order(course.phases.values()) or 1.0
        for phase in PHASES:
            spent_s = course.phases.get(phase, 0.0)
            row = {"seed": course.name, "phase": names[phase], "start": start_s}
            row |= {"end": start_s + spent_s, "middle": start_s + spent_s / 2}
            row |= {"time": seconds(spent_s), "share": percent(spent_s / wall_s)}
            row |= {"label": f"{row['time']} · {row['share']}"}
            rows.append({**row, "part": spent_s / longest_s})
            start_s += spent_s
    y = alt.Y("seed:N").title(None).sort([course.name for course in courses])
    y = y.axis(domain=False, ticks=False, labels=len(courses) > 1)
    x = alt.X("start:Q").title(_SECONDS).axis(grid=False, tickCount=12)
    base = alt.Chart(data(rows)).encode(y=y)
    bars = base.mark_bar(height=30).encode(
        x=x.scale(domain=[0, longest_s], nice=False),
        x2=alt.X2("end:Q"),
        color=alt.Color("phase:N")
        .scale(domain=list(names.values()), range=list(PHASE_COLOURS))
        .legend(orient="top", title=None, labelLimit=260, columns=3 if len(courses) == 1 else 6),
        tooltip=tooltips("seed:N", "phase:N", "time:N", "share:N"),
    )
    labels = base.transform_filter(f"datum.part * width > {_LABEL_WIDTH}").mark_text(
        color="white", fontWeight="bold"
    )
    text = labels.encode(x=alt.X("middle:Q"), text=alt.Text("label:N"))
    return apply_style((bars + text).properties(width=WIDTH, height=44 * len(courses)))


def _phase_name(phase: str, courses: Sequence[Course]) -> str:
    if len(courses) > 1:
        return phase
    spent_s, wall_s = courses[0].phases.get(phase, 0.0), sum_in_order(courses[0].phases.values())
    return f"{phase} {seconds(spent_s)} ({percent(spent_s / (wall_s or 1.0))})"


def kernels(times: Sequence[KernelTime]) -> dict[str, Any] | None:
    """Return a chart of the time by kind of kernel (V2's figure 2); None if not profiled."""
    import altair as alt

    rows = [
        {
            "kind": kernel.kind,
            "share": kernel.share,
            "label": percent(kernel.share),
            "time": seconds(kernel.time_s),
            "calls": kernel.calls,
        }
        for kernel in sorted(times, key=lambda kernel: -kernel.share)
        if kernel.share >= 0.0005  # a share of 0.0 % needs no bar
    ]
    if not rows:
        return None
    base = alt.Chart(data(rows)).encode(
        y=alt.Y("kind:N").sort(None).title(None).axis(domain=False, ticks=False, labelLimit=200),
        x=alt.X("share:Q")
        .scale(domain=[0, max(1.15 * float(str(rows[0]["share"])), 0.1)], nice=False)
        .axis(format="%", tickCount=6)
        .title("share of kernel time"),
        tooltip=tooltips("kind:N", "label:N", "time:N", "calls:Q"),
    )
    bars = base.mark_bar(color=SERIES[0])
    text = base.mark_text(align="left", dx=5, color="#333").encode(text=alt.Text("label:N"))
    return apply_style((bars + text).properties(width=WIDTH, height=26 * len(rows)))


def _sensor_chart(
    courses: Sequence[Course], sensors: Sequence[list[Line]], title: str, unit: str, height: int
) -> dict[str, Any] | None:
    """Return a chart of sensors over time; all seeds share the colour of a sensor."""
    import altair as alt

    rows: list[dict[str, Any]] = [
        {
            "name": line.name,
            "line": f"{line.name}/{course.seed}/{line.attempt}",
            "seed": course.name,
            "time": x,
            "value": y,
            "reading": quantity(y, unit),
        }
        for course, lines in zip(courses, sensors, strict=True)
        for line in lines
        for x, y in line.points
    ]
    if not rows:
        return None
    names = list(dict.fromkeys(str(row["name"]) for row in rows))
    values = [row["value"] for row in rows]
    axis = alt.Axis(format="~s", minExtent=AXIS_EXTENT, tickCount=4)
    colour = alt.Color("name:N").scale(domain=names, range=list(SERIES[: len(names)]))
    chart = lines(rows, few=False, width=1.8 if len(courses) == 1 else 1.2).encode(
        x=_time_axis(courses),
        y=alt.Y("value:Q").scale(scale_from_zero(values)).title(title).axis(axis),
        detail=alt.Detail("line:N"),
        color=colour.legend(orient="top", title=None, labelLimit=220, symbolType="stroke"),
        tooltip=tooltips("name:N", "seed:N", "time:Q", "reading:N"),
    )
    return apply_style(chart.properties(width=WIDTH, height=height))


def lines(rows: list[dict[str, Any]], *, few: bool, width: float = 2) -> Any:
    """Return lines, with points if there are few enough to distinguish them."""
    import altair as alt

    # A tooltip needs a mark under the mouse, so invisible points are added.
    point = {"filled": True, "size": 35} if few else {"opacity": 0, "size": 60}
    return alt.Chart(data(rows)).mark_line(strokeWidth=width, point=point)


def scale_from_zero(values: Iterable[float]) -> Any:
    """Return a scale from 0 with some margin above the highest value."""
    import altair as alt

    return alt.Scale(domain=[0, 1.1 * max(values, default=0.0) or 1.0], nice=False)


def _time_axis(courses: Sequence[Course]) -> Any:
    import altair as alt

    longest_s = max(sum_in_order(course.phases.values()) for course in courses) or 1.0
    scale = alt.Scale(domain=[0, longest_s], nice=False)
    return alt.X("time:Q").title(_SECONDS).scale(scale).axis(grid=False, tickCount=12)


def seed_colours(courses: Sequence[Course]) -> Any:
    """Return the colour of each seed; one seed needs no legend."""
    import altair as alt

    names = [course.name for course in courses]
    colours = [SERIES[index % len(SERIES)] for index in range(len(names))]
    legend = alt.Legend(orient="top", title=None, symbolType="stroke") if len(names) > 1 else None
    return alt.Color("seed:N").scale(domain=names, range=colours).legend(legend)
