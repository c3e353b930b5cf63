"""Climate frames drawn from a seed: sixteen fields with storms to detect, and boxes in pixels.

``draw`` is a pure function of (recipe, year, frame), with the same bytes on every machine whose
numpy conforms to IEEE 754. Frames are independent of each other, with a random season. Calm air
comes from ``background_fields``, storms from the tables in ``event_kinds``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vflops.data.climate.background_fields import Eddies, background, channel, land
from vflops.data.climate.field_names import CHANNELS
from vflops.data.climate.noise import generator
from vflops.data.climate.storm_painting import paint
from vflops.data.climate.storm_placement import Storm, place_storms
from vflops.data.synthetic_folder import check_limits

VERSION = 1  # of the bytes: raise it with any change that alters a frame
GENERATOR = "vflops.weather"
FRAMES_PER_YEAR = 1460
"""Four per day, as published."""

_AIR, _STORMS = 0, 1  # independent random streams of a frame

RANGES: dict[str, tuple[float, float]] = {
    "PRECT": (0.0, 3e-6),
    "PS": (94_000.0, 105_000.0),
    "PSL": (95_000.0, 105_000.0),
    "QREFHT": (0.0, 0.025),
    "T200": (205.0, 238.0),
    "T500": (210.0, 285.0),
    "TMQ": (0.0, 90.0),
    "TREFHT": (205.0, 320.0),
    "TS": (205.0, 320.0),
    "U850": (-50.0, 50.0),
    "UBOT": (-45.0, 45.0),
    "V850": (-50.0, 50.0),
    "VBOT": (-45.0, 45.0),
    "Z1000": (-400.0, 420.0),
    "Z200": (10_300.0, 12_700.0),
    "ZBOT": (45.0, 72.0),
}
"""Limits of all values of a channel, in the files' units: m/s of rain, Pa, kg/kg, K, kg/m² of
water, m/s of wind and m of height."""

_CLIMATE = {  # approximate mean and standard deviation over many frames
    "PRECT": (2.2e-8, 6.4e-8),
    "PS": (100_900.0, 840.0),
    "PSL": (101_100.0, 760.0),
    "QREFHT": (0.0087, 0.0058),
    "T200": (219.7, 2.0),
    "T500": (254.9, 11.5),
    "TMQ": (18.1, 15.7),
    "TREFHT": (281.0, 17.8),
    "TS": (281.4, 18.0),
    "U850": (2.4, 6.7),
    "UBOT": (1.6, 4.8),
    "V850": (0.0, 4.6),
    "VBOT": (0.0, 3.4),
    "Z1000": (91.7, 64.4),
    "Z200": (11_820.0, 446.0),
    "ZBOT": (62.7, 3.94),
}
OFFSET = np.array([_CLIMATE[name][0] for name in CHANNELS])
SCALE = np.array([_CLIMATE[name][1] for name in CHANNELS])
"""The values (value − OFFSET) / SCALE of a channel fit half precision."""


@dataclass(frozen=True)
class WeatherRecipe:
    """What to draw; sizes are in pixels."""

    height: int = 768
    width: int = 1152
    seed: int = 1

    def __post_init__(self) -> None:
        """Raise ``UsageError`` if the recipe cannot be drawn."""
        limits = (("height", 32, 4096), ("width", 32, 4096), ("seed", 0, 2**63 - 1))
        check_limits("synthetic weather", self, limits)

    def as_dict(self) -> dict[str, Any]:
        """Return the recipe as plain data, with the version of the generator."""
        return {"generator": GENERATOR, "version": VERSION, **dataclasses.asdict(self)}


@dataclass(frozen=True)
class Frame:
    """The fields at one moment, and the boxes of the storms in them."""

    fields: NDArray[np.float32]
    """(16, height, width), in the files' units, from south to north."""
    boxes: NDArray[np.int32]
    """(storms, 5): ymin, xmin, ymax, xmax, class."""


def draw(recipe: WeatherRecipe, year: int, frame: int) -> Frame:
    """Draw a frame of a year."""
    storms = storms_of(recipe, year, frame)
    random = generator(recipe.seed, year, frame, _AIR)
    season = float(random.random()) * 2.0 - 1.0
    eddies = Eddies.draw(random, recipe.height, recipe.width)
    fields = background(eddies, land(recipe.seed, recipe.height, recipe.width), season)
    for storm in storms:
        paint(fields, storm, eddies)
    for name in ("PRECT", "QREFHT", "TMQ"):
        minimum, maximum = RANGES[name]
        np.clip(channel(fields, name), minimum, maximum, out=channel(fields, name))
    return Frame(fields, boxes_of(storms))


def storms_of(recipe: WeatherRecipe, year: int, frame: int) -> list[Storm]:
    """Return the storms and look-alikes of a frame, without drawing anything."""
    random = generator(recipe.seed, year, frame, _STORMS)
    return place_storms(random, recipe.height, recipe.width)


def boxes_of(storms: Sequence[Storm]) -> NDArray[np.int32]:
    """Return ymin, xmin, ymax, xmax, class of the storms that have a class: (n, 5)."""
    rows = [
        (storm.box.top, storm.box.left, storm.box.bottom, storm.box.right, storm.kind.label)
        for storm in storms
        if storm.kind.label is not None
    ]
    return np.array(rows, dtype=np.int32).reshape(-1, 5)
