"""Charts of loss and quality over the progress of training; altair is imported when needed."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vflops.publish.pages.chart_style import ACHIEVED, apply_style, data, tooltips
from vflops.publish.report.curves import Points
from vflops.publish.report.training_charts import (
    AXIS_EXTENT,
    WIDTH,
    Course,
    lines,
    scale_from_zero,
    seed_colours,
)
from vflops.record.formats.job import Goal
from vflops.units import seconds


@dataclass(frozen=True)
class Scale:
    """What the progress of training is drawn over: epochs, or units of samples such as tokens."""

    name: str
    per_epoch: float
    """How many of them an epoch has."""

    @property
    def field(self) -> str:
        """Its name in the data of a chart, where dots and brackets have a meaning."""
        return re.sub(r"\W", " ", self.name)

    def of(self, points: Points) -> Points:
        """Return points by epoch as points by this scale."""
        return [(self.per_epoch * epoch, value) for epoch, value in points]

    def axis(self) -> Any:
        """Return the axis of a chart."""
        import altair as alt

        axis = alt.Axis(grid=False, tickMinStep=1)
        if self.per_epoch != 1:
            axis = alt.Axis(grid=False, format="~s", tickCount=8)
        return alt.X(f"{self.field}:Q").title(self.name).scale(domainMin=0).axis(axis)


EPOCHS = Scale("epoch", 1)


def loss(
    courses: Sequence[Course], scale: Scale = EPOCHS, marks: Mapping[str, float] | None = None
) -> dict[str, Any] | None:
    """Return a chart of the loss over the progress of training; None if no loss was logged.

    The loss of evaluations is drawn with dots. ``marks`` are losses that are drawn as lines across
    the chart, by name, such as the target.
    """
    import altair as alt

    rows, evaluated = (
        [
            {"seed": course.name, scale.field: progress, "loss": value, "of": of}
            for course in courses
            for progress, value in scale.of(points(course))
        ]
        for of, points in _LOSSES.items()
    )
    if not rows:
        return None
    title = "loss: line training, dots validation" if evaluated else "training loss"
    y = alt.Y("loss:Q").scale(zero=False).title(title).axis(minExtent=AXIS_EXTENT)
    encoding: dict[str, Any] = {
        "x": scale.axis(),
        "y": y,
        "color": seed_colours(courses),
        "tooltip": tooltips("seed:N", "of:N", f"{scale.field}:Q", "loss:Q"),
    }
    layers: list[Any] = []
    if marks:
        across = [{"loss": value, "label": f"{name} {value:.4g}"} for name, value in marks.items()]
        base = alt.Chart(data(across)).encode(y=y)
        layers = [
            base.mark_rule(color="#444", strokeDash=[6, 4], strokeWidth=1.5),
            base.mark_text(align="right", dx=-6, dy=-7, color="#444").encode(
                x=alt.value("width"), text=alt.Text("label:N")
            ),
        ]
    width = 1.2 if evaluated else 2
    few = len(rows) < 60 * len(courses) and not evaluated
    layers.append(lines(rows, few=few, width=width).encode(**encoding))
    if evaluated:
        dots = alt.Chart(data(evaluated)).mark_point(filled=True, size=60, opacity=1)
        layers.append(dots.encode(**encoding))
    chart = alt.layer(*layers) if len(layers) > 1 else layers[0]
    return apply_style(chart.properties(width=WIDTH, height=280 if marks else 200))


_LOSSES: dict[str, Callable[[Course], Points]] = {
    "training": lambda course: course.loss,
    "validation": lambda course: course.validation_loss,
}


def quality(courses: Sequence[Course], goal: Goal, over: Scale = EPOCHS) -> dict[str, Any] | None:
    """Return a chart of the quality over the progress of training, with the target.

    None without evaluations.
    """
    import altair as alt

    rows = [
        {"seed": course.name, over.field: progress, "quality": value}
        for course in courses
        for progress, value in over.of(course.quality)
    ]
    if not rows:
        return None
    title = goal.quality + (", lower is better" if goal.better == "lower" else "")
    scale = scale_from_zero(
        [goal.target, *(value for course in courses for _, value in course.quality)]
    )
    y = alt.Y("quality:Q").scale(scale).title(title).axis(minExtent=AXIS_EXTENT)
    curves = lines(rows, few=True).encode(
        x=over.axis(),
        y=y,
        color=seed_colours(courses),
        tooltip=tooltips("seed:N", f"{over.field}:Q", "quality:Q"),
    )
    target = alt.Chart(data([{"quality": goal.target, "label": f"target {goal.target:g}"}]))
    rule = target.mark_rule(color="#444", strokeDash=[6, 4], strokeWidth=1.5).encode(y=y)
    label = target.mark_text(
        align="left", dx=6, dy=-8 if goal.better == "higher" else 12, color="#444"
    ).encode(y=y, x=alt.value(0), text=alt.Text("label:N"))
    points = [
        {
            "seed": course.name,
            over.field: over.per_epoch * course.reached[0],
            "quality": course.reached[1],
            "reached": f"reached after {seconds(course.reached[2])}",
        }
        for course in courses
        if course.reached
    ]
    layers = [rule, label, curves]
    if points:
        marks = alt.Chart(data(points)).encode(
            x=over.axis(),
            y=y,
            tooltip=tooltips("seed:N", "reached:N", f"{over.field}:Q", "quality:Q"),
        )
        layers.append(marks.mark_point(size=220, strokeWidth=2.5, color=ACHIEVED))
        if len(courses) == 1:  # labels of several seeds would overlap
            text = marks.mark_text(align="right", dx=-16, dy=-9, color=ACHIEVED, fontWeight="bold")
            layers.append(text.encode(text=alt.Text("reached:N")))
    return apply_style(alt.layer(*layers).properties(width=WIDTH, height=240))
