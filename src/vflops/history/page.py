"""``history.html``: each figure over time with its levels and changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from vflops.history import words
from vflops.history.record import Course, Group, HistoryRecord
from vflops.record import atomic
from vflops.report.page import chart_library, render
from vflops.report.style import ACHIEVED, SERIES, data, finished
from vflops.report.training_charts import WIDTH


def write_page(found: HistoryRecord, name: str, path: Path) -> None:
    """Write the page of the folder ``name``; it needs no network."""
    page = render(
        "history.html",
        title=f"History of {name}",
        found=found,
        words=words,
        drawn=drawn,
        chart_of=chart,
        library=chart_library(),
    )
    atomic.write_text(path, page)


def drawn(group: Group) -> list[Course]:
    """The figures that have a chart: all results, and ceilings that changed."""
    return [each for each in group.courses if each.kind == "result" or each.changes]


def chart(group: Group, course: Course) -> dict[str, Any]:
    """A dot a run, a line a level, and a rule where a new level begins."""
    import altair as alt

    runs = group.runs
    dots = [
        {"time": run.created_utc, "value": value, "run": run.run}
        for run, value in zip(runs, course.values, strict=True)
        if value is not None
    ]
    lines = [
        {"time": runs[at].created_utc, "value": level.mean, "level": str(number)}
        for number, level in enumerate(course.levels)
        for at in dict.fromkeys((level.first, level.last))
    ]
    rules = [
        {"time": change.created_utc, "label": words.told(change), "worse": change.worse}
        for change in course.changes
    ]
    x = alt.X("time:T").scale(type="utc").title(None).axis(grid=False)
    y = alt.Y("value:Q").scale(zero=False).title(course.unit or course.name)
    y = y.axis(format="~s" if course.unit else "~g")
    points = alt.Chart(data(dots)).mark_point(filled=True, size=45, color=SERIES[0])
    level = alt.Chart(data(lines)).mark_line(color="#444", strokeWidth=1.5)
    layers = [
        points.encode(x=x, y=y, tooltip=["run:N", "time:T", "value:Q"]),
        level.encode(x=x, y=y, detail="level:N"),
    ]
    if rules:
        rule = alt.Chart(data(rules)).mark_rule(strokeWidth=2, strokeDash=[5, 3])
        colour = alt.condition("datum.worse", alt.value(ACHIEVED), alt.value(SERIES[2]))
        layers.append(rule.encode(x=x, color=colour, tooltip=["label:N"]))
    return finished(alt.layer(*layers).properties(width=WIDTH, height=180))
