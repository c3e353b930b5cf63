"""``history.html``: each figure over time, with its levels and changes."""

from __future__ import annotations

import math
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from vflops.publish.pages.chart_style import ACHIEVED, SERIES, apply_style, data, tooltips
from vflops.publish.pages.page import chart_library, render
from vflops.publish.report.training_charts import WIDTH
from vflops.record.files import atomic
from vflops.results.figures import format_value
from vflops.studies.history import history_text
from vflops.studies.history.history_data import Course, Group, HistoryRecord


def write_page(record: HistoryRecord, name: str, path: Path) -> None:
    """Write the page of the folder ``name``; it works offline."""
    page = render(
        "history.html",
        title=f"History of {name}",
        found=record,
        words=history_text,
        drawn=drawn,
        chart_of=chart,
        library=chart_library(),
    )
    atomic.write_text(path, page)


MIN_VALUES = 3
"""The smallest number of values for which a chart is drawn."""
_DAYS = timedelta(days=6)
"""If the runs span at least this time, the axis shows days without hours."""


def drawn(group: Group) -> list[Course]:
    """Return the figures that get a chart: results of several runs, and ceilings that changed."""
    return [
        course
        for course in group.courses
        if course.changes
        or (course.kind == "result" and sum(v is not None for v in course.values) >= MIN_VALUES)
    ]


def chart(group: Group, course: Course) -> dict[str, Any]:
    """Return a chart with a dot per run, a line per level, and a rule where a level begins."""
    import altair as alt

    runs = group.runs
    dots = [
        {
            "time": run.created_utc,
            "value": value,
            "run": run.run,
            "when": history_text.format_time(run.created_utc),
            "figure": format_value(course.unit, value),
        }
        for run, value in zip(runs, course.values, strict=True)
        if value is not None
    ]
    lines = [
        {"time": runs[index].created_utc, "value": level.mean, "level": str(number)}
        for number, level in enumerate(course.levels)
        for index in dict.fromkeys((level.first, level.last))
    ]
    rules = [
        {
            "time": change.created_utc,
            "label": history_text.change_words(change),
            "worse": change.worse,
        }
        for change in course.changes
    ]
    x = alt.X("time:T").scale(type="utc").title("UTC")
    x = x.axis(grid=False, format=time_format(group), labelOverlap=True, tickCount=6)
    y = alt.Y("value:Q").scale(zero=False)
    y = y.title(course.name if course.unit in (None, "share") else course.unit)
    y = y.axis(format=figure_format(course), tickCount=4)
    points = alt.Chart(data(dots)).mark_point(filled=True, size=45, color=SERIES[0])
    level = alt.Chart(data(lines)).mark_line(color="#444", strokeWidth=1.5)
    layers = [
        points.encode(x=x, y=y, tooltip=tooltips("run:N", "when:N", "figure:N")),
        level.encode(x=x, y=y, detail=alt.Detail("level:N")),
    ]
    if rules:
        rule = alt.Chart(data(rules)).mark_rule(strokeWidth=2, strokeDash=[5, 3])
        colour = alt.condition("datum.worse", alt.value(ACHIEVED), alt.value(SERIES[2]))
        layers.append(rule.encode(x=x, color=colour, tooltip=tooltips("label:N")))
    return apply_style(alt.layer(*layers).properties(width=WIDTH, height=180))


def time_format(group: Group) -> str:
    """Return the format of the time axis: dates, with hours if the runs span only a few days."""
    first, last = (datetime.fromisoformat(group.runs[index].created_utc) for index in (0, -1))
    return "%Y-%m-%d" if last - first >= _DAYS else "%m-%d %H:%M"


def figure_format(course: Course) -> str:
    """Return the format of the figure axis, with enough digits to distinguish its values."""
    known = [value for value in course.values if value is not None]
    largest, span = max(map(abs, known)), max(known) - min(known)
    digits = min(max(math.ceil(math.log10(largest / span)) + 2, 3), 6) if span else 3
    if course.unit == "share":
        integer_digits = math.floor(math.log10(100 * largest)) + 1 if largest else 1
        return f".{max(digits - integer_digits, 0)}%"
    return f".{digits}~{'s' if course.unit not in (None, 's') else 'g'}"
