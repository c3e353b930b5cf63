"""Placement of chart labels without overlaps; a label without room is left out."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from math import log10

_LETTER = 0.58
"""The mean width of a letter in units of the font size."""
_GAP = 10
"""Pixels between a point and its label."""
_LINE_PART = 6
"""The width of the boxes that a sloped line occupies, in pixels."""


@dataclass(frozen=True)
class Box:
    """A rectangle in pixels; the origin is the lower left corner of the plot."""

    left: float
    bottom: float
    right: float
    top: float

    def overlaps(self, other: Box) -> bool:
        """Whether the two rectangles overlap."""
        across = self.left < other.right and other.left < self.right
        return across and self.bottom < other.top and other.bottom < self.top


@dataclass
class LabelLayout:
    """Keeps track of the free space in a plot with two logarithmic axes."""

    x_range: tuple[float, float]
    y_range: tuple[float, float]
    size: tuple[int, int]
    """Width and height of the plot in pixels."""
    occupied: list[Box] = field(default_factory=list)

    def pixel(self, x: float, y: float) -> tuple[float, float]:
        """Return the pixel at which a value is drawn."""
        return (
            self.size[0] * log10(x / self.x_range[0]) / log10(self.x_range[1] / self.x_range[0]),
            self.size[1] * log10(y / self.y_range[0]) / log10(self.y_range[1] / self.y_range[0]),
        )

    def value(self, x_px: float, y_px: float) -> tuple[float, float]:
        """Return the value that is drawn at a pixel."""
        return (
            self.x_range[0] * (self.x_range[1] / self.x_range[0]) ** (x_px / self.size[0]),
            self.y_range[0] * (self.y_range[1] / self.y_range[0]) ** (y_px / self.size[1]),
        )

    def keep_free(self, x: float, y: float, radius: float) -> None:
        """Keep labels away from this point."""
        x_px, y_px = self.pixel(x, y)
        self.occupied.append(Box(x_px - radius, y_px - radius, x_px + radius, y_px + radius))

    def occupy(self, box: Box) -> None:
        """Mark a rectangle as occupied."""
        self.occupied.append(box)

    def occupy_line(self, start: tuple[float, float], end: tuple[float, float]) -> None:
        """Mark the pixels of a straight line between two values as occupied."""
        (x1, y1), (x2, y2) = self.pixel(*start), self.pixel(*end)
        parts = max(int((x2 - x1) / _LINE_PART), 1) if y1 != y2 else 1
        for part in range(parts):
            left, right = (x1 + (x2 - x1) * (part + end) / parts for end in (0, 1))
            low, high = (y1 + (y2 - y1) * (part + end) / parts for end in (0, 1))
            self.occupy(Box(left, low - 1, right, high + 1))

    def first_free(self, boxes: Iterable[Box]) -> Box | None:
        """Occupy and return the first of the boxes that is free and inside the plot, if any."""
        for box in boxes:
            inside = box.left >= 2 and box.right <= self.size[0] - 2
            inside = inside and box.bottom >= 2 and box.top <= self.size[1] - 2
            if inside and not any(box.overlaps(other) for other in self.occupied):
                self.occupy(box)
                return box
        return None

    def place_label(self, x: float, y: float, text: str, font: int) -> tuple[float, float] | None:
        """Reserve space next to a point; return the label's left end, or None without room.

        Positions to the right are tried first, then those to the left, each at several heights.
        """
        width, height = text_width(text, font), font + 3.0
        x_px, y_px = self.pixel(x, y)
        box = self.first_free(
            Box(left, middle - height / 2, left + width, middle + height / 2)
            for left in (x_px + _GAP, x_px - _GAP - width)
            for step in (0, -1, 1, -2, 2)
            for middle in (y_px + step * height,)
        )
        return None if box is None else self.value(box.left, (box.bottom + box.top) / 2)

    def beside(self, x: float, y: float) -> tuple[float, float]:
        """Return where a label to the right of a point begins, whatever else is there."""
        x_px, y_px = self.pixel(x, y)
        return self.value(x_px + _GAP, y_px)


def text_width(text: str, font: int) -> float:
    """Return the approximate width of a text in pixels."""
    return _LETTER * font * len(text)


def powers_of_ten(low: float, high: float) -> list[float]:
    """Return ticks of a logarithmic axis: powers of ten, with 2 and 5 if those are too few."""
    first, last = int(log10(low)) - 1, int(log10(high)) + 1
    for digits in ((1,), (1, 2, 5)):
        ticks = [d * 10.0**power for power in range(first, last + 1) for d in digits]
        ticks = [tick for tick in ticks if low <= tick <= high]
        if len(ticks) > 1:
            break
    return ticks
