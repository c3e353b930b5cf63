"""Draws a frame as an SVG: water vapour, wind arrows, true and predicted boxes.

The map is equirectangular with north at the top; the first row of a frame is the southernmost, as
climate models write them. Text outside the map has the colour of the page's text, so that the
picture suits light and dark pages. It uses no ids, so several fit on one page.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

import numpy as np
from numpy.typing import NDArray

from vflops.workloads.extreme_weather import colours
from vflops.workloads.extreme_weather.colours import ClassStyle, style

LEFT, TOP, WIDTH, HEIGHT = 38, 34, 880, 440
"""Position and size of the map inside the picture."""
ARROWS = (24, 16)
"""The number of arrows along longitude and latitude."""
LONGEST_ARROW = 32.0
_LIGHT_LEVEL = 0.66
"""Above this level of the colour map, arrows are dark."""
_TAG_HEIGHT = 15
_DARK = "#0b1220"


@dataclass(frozen=True)
class Box:
    """A box on the grid of the frame; a predicted one has a score."""

    x1: float
    y1: float
    x2: float
    y2: float
    label: int
    score: float | None = None


@dataclass(frozen=True)
class Scale:
    """The meaning of colours and arrow lengths, the same for all frames of a report."""

    low: float
    high: float
    """Water vapour at the ends of the colour map, kg/m²."""
    fastest: float
    """Wind of the longest arrow, m/s."""


@dataclass(frozen=True)
class Frame:
    """A frame to draw."""

    title: str
    water: NDArray[np.float32]
    east: NDArray[np.float32]
    """The wind towards the east, m/s."""
    north: NDArray[np.float32]
    size: tuple[int, int]
    """Height and width of the grid that boxes refer to."""
    boxes: Sequence[Box]


def draw_frame(frame: Frame, scale: Scale) -> str:
    """Return the frame as an SVG."""
    map_parts = [
        f'<image href="{colours.picture(frame.water[::-1], scale.low, scale.high)}" '
        f'width="{WIDTH}" height="{HEIGHT}" preserveAspectRatio="none"/>',
        _graticule(),
        _wind(frame, scale),
        *_boxes(frame),
    ]
    labels = sorted({box.label for box in frame.boxes} | set(range(len(colours.STYLES))))
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {LEFT + WIDTH + 2} 532" '
            'role="img" font-family="system-ui, sans-serif" font-size="12" fill="currentColor">',
            f"<title>{escape(frame.title)}</title>",
            _legend([style(label) for label in labels]),
            f'<svg x="{LEFT}" y="{TOP}" width="{WIDTH}" height="{HEIGHT}">',
            *map_parts,
            "</svg>",
            _axes(),
            _scales(scale),
            "</svg>",
        ]
    )


def _graticule() -> str:
    across = [f"M0,{HEIGHT * line // 6}h{WIDTH}" for line in range(1, 6)]
    down = [f"M{WIDTH * line // 6},0v{HEIGHT}" for line in range(1, 6)]
    path = "".join(across + down)
    return f'<path d="{path}" fill="none" stroke="#fff" stroke-opacity=".13"/>'


def _wind(frame: Frame, scale: Scale) -> str:
    """Return the wind arrows, light over dry regions and dark over moist ones."""
    east, north, water = (
        colours.resize(field[::-1], *ARROWS) for field in (frame.east, frame.north, frame.water)
    )
    bright = colours.colour_levels(water, scale.low, scale.high) > _LIGHT_LEVEL * colours.LEVELS
    paths: dict[bool, list[str]] = {False: [], True: []}
    for row in range(ARROWS[1]):
        for column in range(ARROWS[0]):
            x = (column + 0.5) * WIDTH / ARROWS[0]
            y = (row + 0.5) * HEIGHT / ARROWS[1]
            dx, dy = float(east[row, column]), -float(north[row, column])
            paths[bool(bright[row, column])].append(_arrow(x, y, dx, dy, scale.fastest))
    return "".join(
        f'<path d="{"".join(path)}" fill="none" stroke="{colour}" stroke-opacity="{opacity}" '
        'stroke-width="1.1" stroke-linecap="round" stroke-linejoin="round"/>'
        for path, colour, opacity in ((paths[False], "#fff", ".62"), (paths[True], _DARK, ".5"))
        if path
    )


def _arrow(x: float, y: float, dx: float, dy: float, fastest: float) -> str:
    """Return an arrow centred at (x, y), with a length proportional to the wind speed.

    The result is empty if the arrow would be too short to see.
    """
    speed = math.hypot(dx, dy)
    length = LONGEST_ARROW * min(speed / fastest, 1.0)
    if length < 2:
        return ""
    ux, uy = dx / speed, dy / speed
    head = min(4.5, 0.45 * length)
    tip_x, tip_y = x + ux * length / 2, y + uy * length / 2
    wings = [
        (tip_x - head * (0.86 * ux - side * 0.5 * uy), tip_y - head * (0.86 * uy + side * 0.5 * ux))
        for side in (1, -1)
    ]
    points = [(x - ux * length / 2, y - uy * length / 2), (tip_x, tip_y)]
    shaft = "M{:.1f},{:.1f}L{:.1f},{:.1f}".format(*points[0], *points[1])
    return shaft + "M{:.1f},{:.1f}L{:.1f},{:.1f}L{:.1f},{:.1f}".format(
        *wings[0], tip_x, tip_y, *wings[1]
    )


def _boxes(frame: Frame) -> Iterable[str]:
    """Yield true boxes first, then predicted ones, then the tags on top."""
    true = [box for box in frame.boxes if box.score is None]
    predicted = [box for box in frame.boxes if box.score is not None]
    for box in (*true, *predicted):
        x, y, width, height = _rectangle(box, frame.size)
        geometry = f'x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"'
        class_style = style(box.label)
        description = "true" if box.score is None else f"predicted, score {box.score:.2f}"
        dash = "" if box.score is None else ' stroke-dasharray="6 4"'
        yield (
            '<g fill="none" pointer-events="all">'
            f"<title>{escape(class_style.name)}, {description}</title>"
            f'<rect {geometry} rx="2" stroke="{_DARK}" stroke-opacity=".7" stroke-width="4"/>'
            f'<rect {geometry} rx="2" stroke="{class_style.bright}" stroke-width="2"{dash}/></g>'
        )
    placed: list[tuple[float, float, float]] = []
    for box in predicted:
        yield _tag(box, _rectangle(box, frame.size), placed)


def _rectangle(box: Box, size: tuple[int, int]) -> tuple[float, float, float, float]:
    """Return left, top, width and height on the map.

    The rows of a frame count from the south, the y coordinate of the map from the north.
    """
    across, down = WIDTH / size[1], HEIGHT / size[0]
    top = HEIGHT - box.y2 * down
    return box.x1 * across, top, (box.x2 - box.x1) * across, (box.y2 - box.y1) * down


def _tag(
    box: Box, rectangle: tuple[float, float, float, float], placed: list[tuple[float, float, float]]
) -> str:
    """Return a tag with class and score at a corner of the box, clear of other tags if possible."""
    class_style = style(box.label)
    text = f"{class_style.short} {box.score:.2f}"
    tag_width = 6.4 * len(text) + 8
    x, y, width, height = rectangle
    corners = [
        (x - 1, y - _TAG_HEIGHT - 2),
        (x - 1, y + height + 2),
        (x + width - tag_width + 1, y - _TAG_HEIGHT - 2),
        (x + width - tag_width + 1, y + height + 2),
        (x + 2, y + 2),
    ]
    free = [corner for corner in corners if _is_free(*corner, tag_width, placed)]
    left, top = (free or corners)[0]
    left = min(max(left, 1), WIDTH - tag_width - 1)
    top = min(max(top, 1), HEIGHT - _TAG_HEIGHT - 1)
    placed.append((left, top, tag_width))
    return (
        f'<g transform="translate({left:.1f},{top:.1f})">'
        f'<rect width="{tag_width:.1f}" height="{_TAG_HEIGHT}" rx="3" fill="{class_style.bright}" '
        f'stroke="{_DARK}" stroke-opacity=".55"/>'
        f'<text x="{tag_width / 2:.1f}" y="11.2" text-anchor="middle" font-size="10.5" '
        f'font-weight="600" fill="{_DARK}">{escape(text)}</text></g>'
    )


def _is_free(
    left: float, top: float, tag_width: float, placed: Sequence[tuple[float, float, float]]
) -> bool:
    if not (0 <= left <= WIDTH - tag_width and 0 <= top <= HEIGHT - _TAG_HEIGHT):
        return False
    return not any(
        left < x + other_width and x < left + tag_width and abs(top - y) < _TAG_HEIGHT
        for x, y, other_width in placed
    )


def _legend(styles: Sequence[ClassStyle]) -> str:
    """Return the legend of colours and lines above the map."""
    parts, x = [], float(LEFT)
    for class_style in styles:
        text = f"{class_style.short} {class_style.name}"
        parts.append(
            f'<rect x="{x:.1f}" y="9" width="11" height="11" rx="2" fill="{class_style.bright}" '
            'stroke="currentColor" stroke-opacity=".35"/>'
            f'<text x="{x + 16:.1f}" y="19">'
            f'<tspan font-weight="600">{escape(class_style.short)}</tspan> '
            f"{escape(class_style.name)}</text>"
        )
        x += 6.35 * len(text) + 34
    right = LEFT + WIDTH
    for start, dash, word in ((right - 168, "", "true"), (right - 96, "6 4", "predicted")):
        parts.append(
            f'<path d="M{start},15h24" stroke="currentColor" stroke-width="2" '
            f'stroke-dasharray="{dash or "none"}"/><text x="{start + 30}" y="19">{word}</text>'
        )
    return "".join(parts)


def _axes() -> str:
    """Return the degrees beside and below the map."""
    parts = []
    for line, name in enumerate(("60°N", "30°N", "0°", "30°S", "60°S"), start=1):
        y = TOP + HEIGHT * line / 6 + 4
        parts.append(f'<text x="{LEFT - 6}" y="{y:.1f}" text-anchor="end">{name}</text>')
    for line, name in enumerate(("60°E", "120°E", "180°", "120°W", "60°W"), start=1):
        x = LEFT + WIDTH * line / 6
        parts.append(
            f'<text x="{x:.1f}" y="{TOP + HEIGHT + 15}" text-anchor="middle">{name}</text>'
        )
    return f'<g font-size="11" fill-opacity=".72">{"".join(parts)}</g>'


def _scales(scale: Scale) -> str:
    """Return the colour bar and an arrow of a round speed, below the map."""
    x, y, bar_width = LEFT, TOP + HEIGHT + 30, 300
    ticks = "".join(
        f'<text x="{x + bar_width * (tick - scale.low) / (scale.high - scale.low):.1f}" '
        f'y="{y + 24}" text-anchor="middle">{tick}</text>'
        for tick in _ticks(scale)
    )
    speeds = (50, 20, 10, 5, 2, 1)
    speed = next((value for value in speeds if value <= scale.fastest), scale.fastest)
    start = LEFT + WIDTH - 196
    end = start + LONGEST_ARROW
    arrow = _arrow((start + end) / 2, y + 6, speed, 0, scale.fastest)
    return (
        f'<text x="{x + bar_width + 10}" y="{y + 10}">integrated water vapour, kg/m²</text>'
        f'<image href="{colours.scale_picture()}" x="{x}" y="{y}" width="{bar_width}" height="12" '
        'preserveAspectRatio="none"/>'
        f'<g font-size="11" fill-opacity=".72">{ticks}</g>'
        f'<path d="{arrow}" fill="none" stroke="currentColor" stroke-width="1.4" '
        f'stroke-linecap="round"/><text x="{end + 8}" y="{y + 10}">wind at 850 hPa, '
        f"{speed:g} m/s</text>"
    )


def _ticks(scale: Scale) -> range:
    """Return up to nine round values of water vapour within the scale."""
    step = 10 * math.ceil((scale.high - scale.low) / 80)
    return range(step * math.ceil(scale.low / step), math.floor(scale.high) + 1, step)
