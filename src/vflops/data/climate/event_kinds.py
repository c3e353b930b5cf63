"""What a frame contains besides calm air: storms with boxes, and look-alikes without.

Each kind is a row of a table: its size, latitude, wind and effect on each field. A look-alike has
no class and resembles a storm in one or two fields, so that one field is not enough to detect a
storm. Sizes are fractions of the frame's height: a small frame holds the same weather.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

Range = tuple[float, float]
Shape = Literal["round", "comma", "filament"]


@dataclass(frozen=True)
class EventKind:
    """One kind of storm or look-alike; every range runs from the weakest to the strongest."""

    name: str
    label: int | None
    """The class, or None for a look-alike, which must not be detected."""
    shape: Shape
    size: Range
    """Height of the box relative to the frame; for a filament, its length."""
    degrees: Range
    """Latitudes of the centre, north or south; a filament goes from the first to the second."""
    wind: Range
    """Maximum speed in m/s around a low (negative around a high) or along a filament."""
    change: Mapping[str, Range]
    """Maximum change by field."""


def _kind(
    name: str,
    label: int | None,
    shape: Shape,
    size: Range,
    degrees: Range,
    wind: Range,
    **change: Range,
) -> EventKind:
    return EventKind(name, label, shape, size, degrees, wind, MappingProxyType(change))


STORMS = (
    _kind("tropical depression", 0, "round", (0.10, 0.15), (7, 22), (2.8, 7.5),
          PSL=(-140, -520), T200=(0.1, 0.6), T500=(0.1, 0.7), TMQ=(2.4, 8.5),
          QREFHT=(0.0002, 0.0008), PRECT=(0.3e-7, 1.7e-7), Z200=(1, 9)),
    _kind("tropical cyclone", 1, "round", (0.10, 0.16), (8, 24), (11, 30),
          PSL=(-700, -3400), T200=(0.9, 4.2), T500=(0.9, 3.8), TMQ=(6, 19),
          QREFHT=(0.0005, 0.002), PRECT=(1.5e-7, 9e-7), Z200=(10, 60), TREFHT=(-0.2, -0.8)),
    _kind("extratropical cyclone", 2, "comma", (0.16, 0.33), (33, 56), (2.4, 16),
          PSL=(-240, -2500), T200=(0.2, 1.8), T500=(-0.6, -5.5), TMQ=(1.5, 10),
          QREFHT=(0.0001, 0.0011), PRECT=(0.2e-7, 2.2e-7), Z200=(-20, -200), TREFHT=(-0.4, -3.5)),
    _kind("atmospheric river", 3, "filament", (0.20, 0.52), (19, 47), (6, 18),
          TMQ=(9, 24), QREFHT=(0.0008, 0.0024), PRECT=(0.8e-7, 2.4e-7), T500=(0.4, 1.3),
          TREFHT=(0.7, 2.2)),
)  # fmt: skip
"""A frame has up to three of each, most of them weak."""

LOOK_ALIKES = (
    _kind("warm spot", None, "round", (0.10, 0.16), (5, 28), (0, 0),
          T200=(0.8, 3.5), T500=(0.8, 3.5), TREFHT=(0.3, 1.5), TMQ=(2, 8)),
    _kind("dry low", None, "round", (0.10, 0.18), (8, 35), (0, 0),
          PSL=(-400, -2200), TMQ=(-1, -5), TREFHT=(0.5, 2.5)),
    _kind("moist blob", None, "round", (0.10, 0.22), (8, 45), (0, 0),
          TMQ=(4, 16), QREFHT=(0.0003, 0.0015), PRECT=(0.5e-7, 4e-7)),
    _kind("moist high", None, "round", (0.10, 0.16), (8, 24), (-4, -16),
          PSL=(150, 700), TMQ=(3, 12), PRECT=(0.5e-7, 2e-7)),
    _kind("dry jet", None, "filament", (0.22, 0.50), (20, 48), (4, 16), TMQ=(-1, -4)),
    _kind("cold pool", None, "round", (0.20, 0.30), (36, 56), (0, 0),
          T500=(-1.5, -6.0), Z200=(-30, -150), TREFHT=(-0.8, -3.0)),
)  # fmt: skip
"""A frame has three of them."""
