"""Figures that a workload adds to the report, made from the arrays that a job stored."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Figure:
    """A figure in the report: either an SVG picture or a chart."""

    title: str
    caption: str
    svg: str | None = None
    """Inserted into the page unchanged: text in it must be escaped already."""
    chart: dict[str, Any] | None = None
    """A Vega-Lite specification; the report sets fonts and colours."""

    def __post_init__(self) -> None:
        if (self.svg is None) == (self.chart is None):
            raise ValueError(f"figure {self.title!r} needs either an svg or a chart")
