"""Charts of a search: score over time, family tree, tuned parameters, and time spent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any

from vflops.metrics.summation import sum_in_order
from vflops.publish.pages.chart_style import ACHIEVED, SERIES, apply_style, data, tooltips
from vflops.publish.report.curves import Points
from vflops.publish.report.training_charts import PHASE_COLOURS, WIDTH
from vflops.results.score.score_file import CandidateScore, SearchScore
from vflops.units import percent, quantity, seconds
from vflops.workloads.automl.search_events import Turn

MAX_FAMILY = 1000
"""With more candidates than this, only the best are drawn, with their ancestors."""
_UNCHANGED = "unchanged"
"""The label of kernels that tuning did not change."""
_MAX_TICKS = 12
_TIME = "seconds since the search began"
_SCORE_NAMES = ("operations per second", "regulated: −ln(error) × operations per second")
_ACTIVITY_COLOURS = (PHASE_COLOURS[0], "#c2333f", "#d9a0a6", *PHASE_COLOURS[1:])
"""The colours of start-up, waiting, building, and the phases of training."""


@dataclass(frozen=True)
class TimeSpent:
    """The time of a worker by activity."""

    name: str
    seconds: Mapping[str, float]


def score(search: SearchScore) -> dict[str, Any] | None:
    """Return a chart of both scores over time (the paper's figure 4).

    Dashed parts do not count towards the score.
    """
    import altair as alt

    rows: list[dict[str, Any]] = []
    for moment in search.moments:
        for name, value in zip(_SCORE_NAMES, (moment.ops_per_s, moment.regulated), strict=True):
            if value is not None:
                row = {"time": moment.time_s, "what": name, "value": value}
                error = "—" if moment.error is None else f"{moment.error:.4g}"
                row |= {"figure": quantity(value, "OPS"), "error": error}
                rows.append(row | {"trained": moment.trained, "counts": moment.counts})
    if not rows:
        return None
    colour = alt.Color("what:N").scale(domain=list(_SCORE_NAMES), range=[SERIES[0], ACHIEVED])
    base = alt.Chart(data(rows)).encode(
        x=_time(search.duration_s),
        y=alt.Y("value:Q").title("OPS").axis(format="~s", minExtent=56),
        color=colour.legend(orient="top", title=None, labelLimit=400, symbolType="stroke"),
        tooltip=tooltips("what:N", "time:Q", "figure:N", "error:N", "trained:Q"),
    )
    point = {"opacity": 0, "size": 60}
    lines = base.mark_line(strokeWidth=2, point=point).transform_filter("datum.counts")
    not_counted = base.mark_line(strokeWidth=1.5, strokeDash=[3, 3]).transform_filter(
        "!datum.counts"
    )
    return apply_style((not_counted + lines).properties(width=WIDTH, height=240))


def utilisation(busy: Mapping[str, Points], length_s: float) -> dict[str, Any] | None:
    """Return a chart of the utilisation (the paper's figure 5); None without telemetry."""
    import altair as alt

    rows = [
        {"time": x, "name": name, "value": y, "reading": f"{y:.0f} %"}
        for name, points in busy.items()
        for x, y in points
    ]
    if not rows:
        return None
    names = list(busy)
    colour = alt.Color("name:N").scale(domain=names, range=list(SERIES[: len(names)]))
    chart = (
        alt.Chart(data(rows))
        .mark_line(strokeWidth=1.8, point={"opacity": 0, "size": 60})
        .encode(
            x=_time(length_s),
            y=alt.Y("value:Q")
            .scale(domain=[0, 105], nice=False)
            .title("busy, %")
            .axis(minExtent=56, values=[0, 25, 50, 75, 100]),
            color=colour.legend(orient="top", title=None, symbolType="stroke"),
            tooltip=tooltips("name:N", "time:Q", "reading:N"),
        )
    )
    return apply_style(chart.properties(width=WIDTH, height=130))


def tree(search: SearchScore) -> dict[str, Any] | None:
    """Return a chart of candidates by round and accuracy, joined to their parents.

    The best candidate and its ancestors are red.
    """
    import altair as alt

    family = _drawn_candidates(search)
    if not family:
        return None
    line = _winner_line(search)
    points = {candidate.candidate: _position(candidate, search.workers) for candidate in family}
    rows = [
        {
            **points[candidate.candidate],
            "candidate": candidate.candidate,
            "state": candidate.state,
            "in line": candidate.candidate in line,
            "parent": candidate.parent or "the first network",
            "parameters": f"{candidate.parameters:,}",
            "operations": quantity(candidate.ops_per_sample, "FLOP"),
            "weights": "inherited" if candidate.inherited else "new",
        }
        for candidate in family
    ]
    edges = [
        {
            **points[candidate.candidate],
            "from_turn": points[candidate.parent]["turn"],
            "from_accuracy": points[candidate.parent]["accuracy"],
            "in line": candidate.candidate in line,
        }
        for candidate in family
        if candidate.parent in points
    ]
    last = max(point["turn"] for point in points.values())
    scale = alt.Scale(domain=[0.5, last + 0.5], nice=False)
    x = alt.X("turn:Q").title("round").scale(scale)
    x = x.axis(grid=False, values=_round_ticks(ceil(last - 0.5)), format="d")
    y = alt.Y("accuracy:Q").scale(zero=False, padding=12).title("accuracy").axis(minExtent=56)
    layers = []
    for in_line, colour, width in ((False, "#b6bec9", 1.0), (True, ACHIEVED, 2.4)):
        chosen = [edge for edge in edges if edge["in line"] is in_line]
        if chosen:
            rule = alt.Chart(data(chosen)).mark_rule(color=colour, strokeWidth=width, opacity=0.85)
            layers.append(
                rule.encode(x=x, y=y, x2=alt.X2("from_turn:Q"), y2=alt.Y2("from_accuracy:Q"))
            )
    names = [f"{name}:N" for name in ("candidate", "state", "parent", "weights")]
    tooltip = tooltips(*names, "accuracy:Q", "parameters:N", "operations:N")
    dots = (
        alt.Chart(data(rows))
        .mark_point(filled=True, opacity=1, stroke="white", strokeWidth=0.8)
        .encode(
            x=x,
            y=y,
            size=alt.condition("datum['in line']", alt.value(110), alt.value(55)),
            color=alt.condition("datum['in line']", alt.value(ACHIEVED), alt.value(SERIES[0])),
            tooltip=tooltip,
        )
    )
    return apply_style(alt.layer(*layers, dots).properties(width=WIDTH, height=320))


def slices(search: SearchScore) -> dict[str, Any] | None:
    """Return charts of the accuracy over each tuned hyper-parameter; None before tuning rounds."""
    import altair as alt

    charts = []
    for name, title in (("batch", "batch"), ("kernel", "kernel size")):
        rows = [
            {
                name: getattr(candidate, name) or _UNCHANGED,
                "accuracy": candidate.accuracy,
                "candidate": candidate.candidate,
            }
            for candidate in search.candidates
            if candidate.tuned and candidate.state == "trained"
        ]
        if not rows:
            return None
        base = alt.Chart(data(rows)).encode(
            # Layered charts lose a sort order, but not a domain.
            x=alt.X(f"{name}:O")
            .title(title)
            .scale(domain=_sorted_values(rows, name))
            .axis(labelAngle=0),
            y=alt.Y("accuracy:Q").scale(zero=False, padding=8).title("accuracy"),
        )
        dots = base.mark_point(filled=True, size=50, opacity=0.6, color=SERIES[0])
        means = base.mark_tick(color=ACHIEVED, thickness=3, width=34).encode(
            y=alt.Y("mean(accuracy):Q")
        )
        both = means + dots.encode(tooltip=tooltips("candidate:N", f"{name}:O", "accuracy:Q"))
        charts.append(both.properties(width=WIDTH // 2 - 70, height=200))
    return apply_style(alt.hconcat(*charts, spacing=40))


def spent(bars: Sequence[TimeSpent]) -> dict[str, Any] | None:
    """Return a chart of the time by activity, with one bar per worker."""
    import altair as alt

    longest_s = max((sum_in_order(bar.seconds.values()) for bar in bars), default=0.0)
    if not longest_s:
        return None
    names = list(bars[0].seconds)
    rows = []
    for bar in bars:
        total_s, start_s = sum_in_order(bar.seconds.values()) or 1.0, 0.0
        for name, spent_s in bar.seconds.items():
            row = {"worker": bar.name, "what": name, "start": start_s, "end": start_s + spent_s}
            rows.append(row | {"time": seconds(spent_s), "share": percent(spent_s / total_s)})
            start_s += spent_s
    colour = alt.Color("what:N").scale(domain=names, range=list(_ACTIVITY_COLOURS))
    chart = (
        alt.Chart(data(rows))
        .mark_bar(height=22)
        .encode(
            y=alt.Y("worker:N").title(None).sort(None).axis(domain=False, ticks=False),
            x=alt.X("start:Q")
            .title("seconds since the start of the processes")
            .scale(domain=[0, longest_s], nice=False)
            .axis(grid=False, tickCount=12),
            x2=alt.X2("end:Q"),
            color=colour.legend(orient="top", title=None, columns=4),
            tooltip=tooltips("worker:N", "what:N", "time:N", "share:N"),
        )
    )
    return apply_style(chart.properties(width=WIDTH, height=32 * len(bars)))


def _sorted_values(rows: Sequence[Mapping[str, Any]], name: str) -> list[Any]:
    """Return the sorted values of a hyper-parameter, with "unchanged" first."""
    values = {row[name] for row in rows}
    return [_UNCHANGED] * (_UNCHANGED in values) + sorted(values - {_UNCHANGED})


def _drawn_candidates(search: SearchScore) -> list[CandidateScore]:
    """Return the candidates to draw: all, or the best with their ancestors."""
    known = {
        candidate.candidate: candidate
        for candidate in search.candidates
        if candidate.accuracy is not None
    }
    if len(known) <= MAX_FAMILY:
        return list(known.values())
    best = sorted(known.values(), key=lambda c: -(c.accuracy or 0.0))[:MAX_FAMILY]
    chosen: dict[str, CandidateScore] = {}
    for candidate in best:
        ancestor: CandidateScore | None = candidate
        while ancestor is not None and ancestor.candidate not in chosen:
            chosen[ancestor.candidate] = ancestor
            ancestor = known.get(ancestor.parent) if ancestor.parent else None
    return list(chosen.values())


def _winner_line(search: SearchScore) -> set[str]:
    """Return the best candidate and its ancestors."""
    parents = {candidate.candidate: candidate.parent for candidate in search.candidates}
    line: set[str] = set()
    ancestor = search.winner
    while ancestor is not None and ancestor not in line:
        line.add(ancestor)
        ancestor = parents.get(ancestor)
    return line


def _position(candidate: CandidateScore, workers: int) -> dict[str, Any]:
    """Return the position of a candidate; the workers of a round are side by side."""
    turn = Turn.named(candidate.candidate)
    offset = (turn.worker + 0.5) / workers - 0.5
    return {"turn": round(turn.round + 1 + 0.6 * offset, 3), "accuracy": candidate.accuracy}


def _round_ticks(last: int) -> list[int]:
    """Return ticks at whole rounds, few enough for a phone."""
    step = max(ceil(last / _MAX_TICKS), 1)
    return list(range(1, last + 1, step))


def _time(length_s: float) -> Any:
    import altair as alt

    scale = alt.Scale(domain=[0, length_s or 1.0], nice=False)
    return alt.X("time:Q").title(_TIME).scale(scale).axis(grid=False, tickCount=12)
