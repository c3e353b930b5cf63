"""The storms of a frame and where they are, decided before anything is drawn."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from vflops.data.climate.event_kinds import LOOK_ALIKES, STORMS, EventKind, Range

LOOK_ALIKES_PER_FRAME = 3
"""Each of a different kind; fewer if there is no space for them."""

_MAX_TRIES = 40
_MAX_OVERLAP = 0.15  # relative to the smaller box
_COUNT_PROBABILITIES = (0.33, 0.73, 0.93)  # of none, at most one, at most two of a class


@dataclass(frozen=True)
class Box:
    """Rows ``top`` to ``bottom`` and columns ``left`` to ``right``, excluding the ends."""

    top: int
    left: int
    bottom: int
    right: int

    def overlap(self, other: Box) -> float:
        """Return the fraction of the smaller box that lies in the other."""
        tall = min(self.bottom, other.bottom) - max(self.top, other.top)
        wide = min(self.right, other.right) - max(self.left, other.left)
        return max(tall, 0) * max(wide, 0) / min(self.area, other.area)

    @property
    def area(self) -> int:
        """Number of pixels."""
        return (self.bottom - self.top) * (self.right - self.left)

    def is_inside(self, height: int, width: int) -> bool:
        """Whether the box and a margin of one pixel lie in the frame."""
        return (
            self.top >= 1
            and self.left >= 1
            and self.bottom < height
            and self.right < width
            and self.top < self.bottom
            and self.left < self.right
        )


@dataclass(frozen=True)
class Storm:
    """One storm or look-alike at its position; lengths are in pixels."""

    kind: EventKind
    row: float
    column: float
    tall: float
    wide: float
    """Half the height and width of a vortex's box; for a filament, the distances from its middle to
    its poleward, eastern end."""
    pole: int
    """1 in the north, −1 in the south."""
    strength: float
    """0 is the weakest of its kind, 1 the strongest."""
    bend: float
    """Deviation of a filament from a straight line; for a vortex, it changes the winding."""
    thin: float
    """Half the width of a filament."""

    def amount(self, span: Range) -> float:
        """Return the value in the range ``span`` that belongs to the storm's strength."""
        return span[0] + (span[1] - span[0]) * self.strength

    @cached_property
    def box(self) -> Box:
        """The box that a person would draw around the storm."""
        if self.kind.shape != "filament":
            return _box(self.row, self.column, self.tall, self.wide)
        rows, columns = [], []
        for step in range(33):
            along = step / 32.0
            row, column = self._on_line(along)
            half_width = self.thin * min(1.0, 0.35 + 6.0 * along * (1.0 - along))
            rows += [row - half_width, row + half_width]
            columns += [column - half_width, column + half_width]
        top, bottom, left, right = min(rows), max(rows), min(columns), max(columns)
        return _box((top + bottom) / 2, (left + right) / 2, (bottom - top) / 2, (right - left) / 2)

    def _on_line(self, along: float) -> tuple[float, float]:
        """Return a point of a filament's middle line, from its start (0) to its end (1)."""
        aside = self.bend * 4.0 * along * (1.0 - along)
        step = 2.0 * along - 1.0
        row = self.row + self.pole * self.tall * step + self.wide * aside * self.pole
        return row, self.column + self.wide * step - self.tall * aside


def _box(row: float, column: float, tall: float, wide: float) -> Box:
    return Box(round(row - tall), round(column - wide), round(row + tall), round(column + wide))


def place_storms(random: np.random.Generator, height: int, width: int) -> list[Storm]:
    """Return a frame's storms, then its look-alikes, with little overlap."""
    kinds: list[EventKind] = []
    for kind in STORMS:
        draw = float(random.random())
        kinds += [kind] * sum(draw >= bound for bound in _COUNT_PROBABILITIES)
    # The largest are placed first; look-alikes come last and may be left out.
    kinds.sort(key=lambda kind: -kind.size[1])
    order = np.argsort(random.random(len(LOOK_ALIKES)), kind="stable").tolist()
    kinds += [LOOK_ALIKES[number] for number in order[:LOOK_ALIKES_PER_FRAME]]
    placed: list[Storm] = []
    for kind in kinds:
        for _ in range(_MAX_TRIES):
            storm = _draw(kind, random, height, width)
            box = storm.box
            if box.is_inside(height, width) and all(
                box.overlap(other.box) <= _MAX_OVERLAP for other in placed
            ):
                placed.append(storm)
                break
    return placed


def _draw(kind: EventKind, random: np.random.Generator, height: int, width: int) -> Storm:
    """Draw a storm within the latitudes of its kind; it may not fit into the frame."""
    numbers: list[float] = random.random(8).tolist()
    pole = 1 if numbers[0] < 0.5 else -1
    column = numbers[1] * width
    size = (kind.size[0] + (kind.size[1] - kind.size[0]) * numbers[2]) * height
    per_degree = height / 180.0
    low, high = kind.degrees
    if kind.shape == "filament":
        begin = low + (numbers[3] - 0.5) * 14.0
        end = high + (numbers[4] - 0.5) * 26.0
        row = height / 2 + pole * (begin + end) / 2 * per_degree
        tall = (end - begin) / 2 * per_degree
        wide = size / 2
    else:
        row = height / 2 + pole * (low + (high - low) * numbers[3]) * per_degree
        tall = size / 2
        wide = tall * (0.8 + 0.5 * numbers[4])
    bend = (numbers[6] - 0.5) * 0.8
    thin = (0.019 + 0.012 * numbers[7]) * height
    strength = numbers[5] * numbers[5]  # most are weak
    return Storm(kind, row, column, tall, wide, pole, strength, bend, thin)
