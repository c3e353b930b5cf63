"""Figures that a workload adds to the report, made from the arrays that a job stored."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Passage:
    """A text that begins in one way and continues in several, shown below each other."""

    beginning: str
    continuations: tuple[tuple[str, str], ...]
    """Who or what continues it, and how. The report escapes all texts."""


@dataclass(frozen=True)
class Figure:
    """A figure in the report: an SVG picture, a chart, or passages of text."""

    title: str
    caption: str
    svg: str | None = None
    """Inserted into the page unchanged: text in it must be escaped already."""
    chart: dict[str, Any] | None = None
    """A Vega-Lite specification; the report sets fonts and colours."""
    passages: tuple[Passage, ...] = ()

    def __post_init__(self) -> None:
        if (self.svg is not None) + (self.chart is not None) + bool(self.passages) != 1:
            raise ValueError(f"figure {self.title!r} needs either an svg, a chart or passages")
