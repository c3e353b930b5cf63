"""How the points of an experiment used their nodes: a table, and charts over time and scale."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from vflops.results.score.node_usage import NodeUsage
from vflops.studies.scale import scale_charts
from vflops.studies.scale.point_figures import EnsembleFigures, Figures
from vflops.studies.scale.scale_charts import MEASURED, Curve, HorizontalAxis, Moment, Row
from vflops.studies.scale.scale_result import Point, Scale
from vflops.units import quantity

WITHIN, BETWEEN, SENT = "within nodes", "between nodes", "sent by the ranks"
SINCE = "seconds since the first step"

Name = Callable[[Point], str]
"""Returns the name of a point in a table or legend."""


def used(scale: Scale) -> list[tuple[Point, Figures, NodeUsage]]:
    """Return the complete points whose usage is known."""
    return [
        (point, point.figures, point.figures.usage)
        for point in scale.points
        if point.figures and point.figures.usage
    ]


def has_accelerators(scale: Scale) -> bool:
    """Whether a point has readings of accelerators."""
    return any(usage.accelerators for _, _, usage in used(scale))


def usage_table(scale: Scale, name: Name, first: str) -> list[Sequence[str]]:
    """Return utilisation, memory and bandwidth of every point; empty if they are not known."""
    points = used(scale)
    if not points:
        return []
    on = "GPU" if has_accelerators(scale) else "CPU"
    memory = "GPU memory" if on == "GPU" else "memory"
    names = ("hosts", f"{on} busy", memory, WITHIN, BETWEEN, "sent near", "sent far")
    rows: list[Sequence[str]] = [(first, *names)]
    for point, figures, usage in points:
        busy, memory_b = (
            (usage.utilisation, usage.memory_b)
            if on == "GPU"
            else (usage.processors, usage.run_memory_b)
        )
        sent = figures if isinstance(figures, EnsembleFigures) else None
        rows.append(
            (
                name(point),
                str(usage.hosts),
                "—" if busy is None else f"{busy:.0f} %",
                quantity(memory_b, "B"),
                quantity(usage.within_b_per_s, "B/s"),
                quantity(usage.between_b_per_s, "B/s"),
                quantity(sent.sent_near_b_per_s if sent else None, "B/s"),
                quantity(sent.sent_far_b_per_s if sent else None, "B/s"),
            )
        )
    return rows


def usage_note(scale: Scale) -> str:
    """Return an explanation of the columns of the table."""
    device = (
        "GPU busy: the mean over all accelerators of all hosts. GPU memory: the peak in use on an"
        " accelerator, as their mean."
        if has_accelerators(scale)
        else "No accelerator was used, so there is no GPU utilisation and no GPU memory. CPU busy:"
        " how far the jobs used the CPUs assigned to them. Memory: the peak of a job’s processes on"
        " a host, as the mean over jobs."
    )
    return (
        f"{device} Within nodes: bytes per second over loopback and NVLink; between nodes: bytes"
        " per second received over the networks; both are summed over all hosts and include the"
        " traffic of other programs. Sent near, far: bytes per second that the ranks counted, over"
        " near links (within a node) and far links (between nodes)."
    )


def usage_remarks(scale: Scale, name: Name) -> list[tuple[str, str]]:
    """Return which figures of the table were not measured, and why."""
    ignored = () if has_accelerators(scale) else ("utilisation", "memory_b")
    points = used(scale)
    names: dict[str, list[str]] = {}
    for point, _, usage in points:
        figures: dict[str, list[str]] = {}
        for figure, why in usage.missing.items():
            if figure not in ignored:
                figures.setdefault(why, []).append(_TITLES[figure])
        for why, what in figures.items():
            names.setdefault(f"{', '.join(what)} not measured: {why}", []).append(name(point))
    return [
        ("all points" if len(those) == len(points) > 1 else "; ".join(those), remark)
        for remark, those in names.items()
    ]


_TITLES = {
    "utilisation": "utilisation",
    "memory_b": "GPU memory",
    "processors": "processors",
    "run_memory_b": "memory",
    "within_b_per_s": "traffic within nodes",
    "between_b_per_s": "traffic between nodes",
}


def usage_curves(scale: Scale, name: Name) -> list[Curve]:
    """Return charts of utilisation and memory over time, with one line per point."""
    on_gpu = has_accelerators(scale)
    device = "Accelerators" if on_gpu else "Processors (no accelerator was used)"
    memory = "memory of an accelerator" if on_gpu else "memory of a job"
    charts = (
        ("utilisation", device, "busy, %", "utilisation" if on_gpu else "processors"),
        ("memory", memory.capitalize(), f"{memory}, B", "memory_b" if on_gpu else "run_memory_b"),
    )
    curves = []
    for id, title, axis, figure in charts:
        drawn = scale_charts.over_time(dict(_courses(scale, name, figure)), axis, SINCE)
        if drawn:
            curves.append(Curve(id, f"{title} over time", drawn))
    return curves


def bandwidth_curve(
    scale: Scale,
    across: HorizontalAxis,
    at: Callable[[Point], int | str],
    series: Callable[[Point], Sequence[str]],
) -> list[Curve]:
    """Return a chart of the bandwidth of all hosts; empty if it was not measured.

    If an experiment compares several series, each has one line, with the traffic within and
    between nodes together.
    """
    title, axis = "Bandwidth within and between nodes", "B/s, all hosts"
    rows = [
        Row(at(point), value, name)
        for point, figures, usage in used(scale)
        for name, value in _bandwidths(series(point), figures, usage)
        if value is not None
    ]
    if not rows:
        return []
    if len({at(point) for point in scale.points}) == 1:
        drawn = scale_charts.bars(rows, axis, partial(quantity, unit="B/s"))
    else:
        drawn = scale_charts.lines(rows, across, axis, form=scale_charts.SI)
    return [Curve("bandwidth", title, drawn)]


def _bandwidths(
    series: Sequence[str], figures: Figures, usage: NodeUsage
) -> list[tuple[str, float | None]]:
    """Return the bandwidths of a point, each with the name of its line."""
    if tuple(series) != (MEASURED,):
        return [(name, total_b_per_s(figures)) for name in series]
    return [
        (WITHIN, usage.within_b_per_s),
        (BETWEEN, usage.between_b_per_s),
        (SENT, sent_b_per_s(figures)),
    ]


def total_b_per_s(figures: Figures) -> float | None:
    """Return the bandwidth within and between nodes together; None if one is not known."""
    usage = figures.usage
    if usage is None or usage.within_b_per_s is None or usage.between_b_per_s is None:
        return None
    return usage.within_b_per_s + usage.between_b_per_s


def sent_b_per_s(figures: Figures) -> float | None:
    """Return what the ranks sent over near and far links; None if it was not counted."""
    if not isinstance(figures, EnsembleFigures) or figures.sent_near_b_per_s is None:
        return None
    return figures.sent_near_b_per_s + (figures.sent_far_b_per_s or 0.0)


def _courses(scale: Scale, name: Name, figure: str) -> Iterator[tuple[str, list[Moment]]]:
    for point, _, usage in used(scale):
        course = usage.course(figure)
        if course and len(course.points) > 1:
            yield name(point), [Moment(time_s, value, True) for time_s, value in course.points]
