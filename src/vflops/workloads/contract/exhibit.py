"""What a workload shows in the report: figures made from the arrays that a job left."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Figure:
    """A figure of the report: an SVG picture or a chart."""

    title: str
    caption: str
    svg: str | None = None
    """Inserted into the page unchanged, so its author escapes the text in it."""
    chart: dict[str, Any] | None = None
    """A Vega-Lite specification; the report adds its own fonts and colours."""

    def __post_init__(self) -> None:
        if (self.svg is None) == (self.chart is None):
            raise ValueError(f"figure {self.title!r} needs an svg or a chart, and not both")
