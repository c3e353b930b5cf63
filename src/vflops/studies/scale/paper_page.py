"""``paper.html``: the figures of a paper, each beside the values that the paper prints."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

from vflops.counting.conventions import convention
from vflops.counting.count import count
from vflops.publish.pages.page import chart_library, render
from vflops.record.files import atomic
from vflops.record.formats.graph import Graph
from vflops.studies.scale.axis import Axis
from vflops.studies.scale.paper_study import PaperStudy, Part
from vflops.studies.scale.papers import OPERATION_COUNTS, PaperFigure
from vflops.studies.scale.scale_charts import Curve
from vflops.studies.scale.scale_result import Scale, Size

_TRAIN, _VALIDATION = 1_281_167, 50_000
"""The images of ImageNet."""


class WorkloadFigure(NamedTuple):
    """One workload of a figure of the page."""

    axis: Axis
    scale: Scale
    curves: Sequence[Curve]


class PagePoint(NamedTuple):
    """A run of the study in the list of points."""

    workload: str
    size: Size
    figures: str
    run: str | None
    """The run folder, relative to the page."""
    state: str
    broken: bool
    """Whether it breaks a rule."""


def write_paper_page(study: PaperStudy) -> None:
    """Write the page with all points that are complete so far; VFLOPS are as published."""
    results = [(part, scale.as_published()) for part, scale in study.results()]
    figures = []
    for figure in study.paper.figures:
        own = [(part, scale) for part, scale in results if part.figure is figure]
        parts = [
            WorkloadFigure(
                part.experiment.axis, scale, _curves(figure, part.experiment.axis, scale)
            )
            for part, scale in own
        ]
        figures.append((figure, comparison(figure, [scale for _, scale in own]), parts))
    scales = [scale for _, scale in results]
    page = render(
        "paper.html",
        title=f"The experiments of {study.paper.title}",
        study=study,
        figures=figures,
        scales=scales,
        points=_points(results),
        counts=operation_counts() if study.paper.has_operation_counts else [],
        library=chart_library(),
    )
    atomic.write_text(study.page_file, page)


def _points(results: Sequence[tuple[Part, Scale]]) -> list[PagePoint]:
    """Return all runs, each once, with the figures that they belong to."""
    found: dict[Path, PagePoint] = {}
    for part, scale in results:
        for point in scale.points:
            parent, number = part.experiment.parent(point.size), part.figure.number
            if parent in found:
                known = found[parent].figures
                found[parent] = found[parent]._replace(figures=f"{known}, {number}")
                continue
            run = f"{scale.workload}/{point.run}" if point.run else None
            broken = point.figures.checks_failed if point.figures else 0
            state = f"{broken} not met" if broken else "all met"
            if point.figures is None:
                state = "refused" if point.refused else "not complete"
            found[parent] = PagePoint(scale.workload, point.size, number, run, state, bool(broken))
    return list(found.values())


def comparison(figure: PaperFigure, scales: Sequence[Scale]) -> list[Sequence[str]]:
    """Return the values that the paper prints, each with that of these points."""
    by_workload = {scale.workload: scale for scale in scales}
    rows: list[Sequence[str]] = [("", "the paper", "here")]
    for reported in figure.reported:
        rows.append((reported.what, reported.paper, reported.here(by_workload) or "—"))
    return rows


def _curves(figure: PaperFigure, axis: Axis, scale: Scale) -> list[Curve]:
    """Return the charts that the figure of the paper has; their ids are unique on the page."""
    return [
        Curve(f"{figure.key}-{scale.workload}-{curve.id}", curve.title, curve.chart)
        for curve in axis.curves(scale)
        if curve.id in figure.charts
    ]


@cache
def operation_counts() -> list[Sequence[str]]:
    """Return AIPerf's table VII, with our counts by its rules and by those of its program."""
    from vflops.models.model_graph import graph_of

    graph = graph_of("resnet50-v1")
    printed, original = (_per_epoch(graph, name) for name in ("aiperf", "aiperf-original"))
    names = ("per epoch of ImageNet", "tf.profiler", "nvprof", "analytic", "here", "here, program")
    return [
        names,
        *((*row, *own) for row, *own in zip(OPERATION_COUNTS, printed, original, strict=True)),
    ]


def _per_epoch(graph: Graph, rules: str) -> list[str]:
    """Return the operations of an epoch of ImageNet, in the order of the table."""
    total = count(graph, convention(rules)).total
    forward, backward = total.forward * _TRAIN, (total.total - total.forward) * _TRAIN
    validation = total.forward * _VALIDATION
    shown = (
        f"{forward:.2E}",
        f"{backward:.2E}",
        f"{backward / forward:.4f}",
        f"{forward + backward:.2E}",
        f"{validation:.2E}",
        f"{forward + backward + validation:.2E}",
    )
    return [text.replace("E+", "E") for text in shown]
