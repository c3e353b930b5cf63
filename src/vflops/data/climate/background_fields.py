"""The air without storms: sixteen smooth fields that are physically consistent.

This module and ``storm_painting`` use only numpy's elementwise arithmetic, comparisons and square
roots, whose results IEEE 754 defines exactly. Exponentials, sines, Fourier transforms and sums over
an array may differ in the last bit between machines.

Rows run from south to north, as in the published files, and columns from west to east.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from vflops.data.climate.field_names import CHANNELS
from vflops.data.climate.noise import Field, SmoothField, bands, generator, noise, noises

PA_PER_M = 11.8
"""Change of pressure near the ground per metre of height."""

_CHANNEL_NOISE: dict[str, float] = {
    "PS": 130.0,
    "PSL": 130.0,
    "T200": 0.9,
    "T500": 0.9,
    "TREFHT": 0.9,
    "TS": 0.9,
    "U850": 1.4,
    "UBOT": 1.1,
    "V850": 1.4,
    "VBOT": 1.1,
    "Z1000": 11.0,
    "Z200": 16.0,
    "ZBOT": 0.3,
}
"""Amplitude of each field's own noise, without which two fields would reveal a storm."""
_RELATIVE_NOISE: dict[str, float] = {"PRECT": 0.35, "QREFHT": 0.05, "TMQ": 0.08}
"""The same for fields whose noise is proportional to their value."""


def channel(fields: NDArray[np.float32], name: str) -> NDArray[np.float32]:
    """Return a view of the field ``name``, which can be changed in place."""
    view: NDArray[np.float32] = fields[CHANNELS.index(name)]
    return view


def latitude(height: int) -> Field:
    """Return the latitude of each row, from −1 (south pole) to 1 (north pole): (height, 1)."""
    rows = np.arange(height, dtype=np.float32)[:, None]
    return (rows * 2.0 + 1.0) / float(height) - 1.0


def bump(distance: Field) -> Field:
    """Return 1 at a distance of 0, falling smoothly to 0 at a distance of 1 and beyond."""
    rest = np.maximum(1.0 - distance * distance, 0.0)
    return rest * rest


@dataclass(frozen=True)
class Eddies:
    """Independent noise fields; most are shared by several channels."""

    flow: Field
    """The stream function of the lower atmosphere; its gradient gives the wind."""
    warmth: SmoothField
    moisture: Field
    showers: SmoothField
    surface: SmoothField
    gusts: Field
    per_channel: tuple[SmoothField, ...]
    """One field for each channel, used by that channel alone."""

    @classmethod
    def draw(cls, random: np.random.Generator, height: int, width: int) -> Eddies:
        """Draw new eddies; flow is the smoothest, because its gradient must be smooth too."""
        return cls(
            flow=noise(random, height, width, 6, 0.36).whole(),
            warmth=noise(random, height, width, 5, 0.5),
            moisture=noise(random, height, width, 6, 0.6).whole(),
            showers=noise(random, height, width, 8, 0.7),
            surface=noise(random, height, width, 8, 0.6),
            gusts=noise(random, height, width, 10, 0.6).whole(),
            per_channel=noises(random, len(CHANNELS), height, width, 8, 0.6),
        )


@lru_cache(maxsize=2)
def land(seed: int, height: int, width: int) -> Field:
    """Return the height of the land, from 0 (sea) to 1; it is the same in all frames of a seed."""
    terrain = noise(generator(seed), height, width, 4, 0.55).whole()
    elevation: Field = np.clip(terrain * 0.9 - 0.35, 0.0, 1.0)
    elevation.flags.writeable = False  # callers share it
    return elevation


def background(eddies: Eddies, elevation: Field, season: float) -> NDArray[np.float32]:
    """Return the fields of calm air; ``season`` is −1 in southern and 1 in northern summer."""
    height, width = elevation.shape
    fields = np.empty((len(CHANNELS), height, width), np.float32)
    for rows in bands(height, width):
        _fill_band(fields[:, rows], rows, eddies, elevation[rows], season)
    return fields


def _fill_band(
    fields: NDArray[np.float32], rows: slice, eddies: Eddies, elevation: Field, season: float
) -> None:
    """Fill some rows of the fields; ``elevation`` is that of these rows."""
    warmth, showers, surface = (
        eddy.rows(rows) for eddy in (eddies.warmth, eddies.showers, eddies.surface)
    )
    moisture, gusts = eddies.moisture[rows], eddies.gusts[rows]
    y = latitude(len(eddies.flow))[rows]
    turn = y / (np.abs(y) + 0.1)  # direction and strength of rotation around a low
    west = bump((np.abs(y) - 0.5) / 0.36)  # strength of the westerlies: 1 at 45°
    from_sun = y - 0.07 * season  # distance from the latitude where the sun is highest
    highs = eddies.flow[rows] * turn
    meander = (highs + warmth) * y * (0.02 + 0.075 * west)
    distance = np.minimum(np.abs(from_sun - meander), 1.0)
    warm = 1.0 - distance * distance
    humid = warm * warm
    u, v = _winds(eddies.flow, rows, y, west)
    belts = 900.0 * bump((np.abs(y) - 0.34) / 0.22) - 1_100.0 * bump((np.abs(y) - 0.7) / 0.25)
    pressure = 101_200.0 + belts + highs * (330.0 + 420.0 * west)
    ridge = highs * 0.6 + warmth * 0.8
    summer = y * season
    low_air = 246.0 + 54.0 * warm + 7.0 * summer + ridge * (4.5 - 3.0 * humid)
    wet = np.clip(0.3 + showers * 0.45 + moisture * 0.35, 0.0, 1.8)
    moist = 1.0 + np.clip(moisture, -2.5, 2.5) * 0.16 + v * turn * 0.01
    water = (3.0 + 42.0 * (humid * humid * (0.3 + 0.7 * humid))) * moist * (1.0 - 0.15 * elevation)

    def set_field(name: str, value: Field) -> None:
        field_noise = eddies.per_channel[CHANNELS.index(name)].rows(rows)
        if name in _RELATIVE_NOISE:
            channel(fields, name)[:] = value * np.maximum(
                1.0 + field_noise * _RELATIVE_NOISE[name], 0.0
            )
        else:
            channel(fields, name)[:] = value + field_noise * _CHANNEL_NOISE[name]

    set_field("TMQ", water)
    set_field("PRECT", wet * wet * wet * water * (1.7e-9 + 0.7e-9 * bump(distance / 0.2)))
    set_field("PSL", pressure)
    set_field("PS", pressure - 900.0 * elevation)
    set_field("Z1000", (pressure - 100_000.0) / PA_PER_M)
    set_field("QREFHT", 0.0006 + 0.0125 * humid + (water - 3.0) * 0.000095 + surface * 0.0002)
    set_field("T200", 222.0 - 3.5 * warm + warmth * 1.4 - highs * west * 1.2)
    set_field(
        "T500", 235.0 + 18.0 * warm + 15.0 * humid + 3.0 * summer + ridge * (3.4 - 1.8 * humid)
    )
    set_field("TREFHT", low_air - 4.0 * elevation)
    set_field("TS", low_air + surface * 1.3 + elevation * (3.0 * warm - 4.0))
    set_field("U850", u)
    set_field("V850", v)
    slowed = 0.74 - 0.25 * elevation
    set_field("UBOT", u * slowed + gusts * 0.7)
    set_field("VBOT", v * slowed + surface * 0.7)
    set_field(
        "Z200", 11_020.0 + 1_330.0 * (0.5 * warm + 0.5 * humid) + ridge * (95.0 - 60.0 * humid)
    )
    set_field("ZBOT", low_air * 0.2225 + gusts * 0.12)


def _winds(flow: Field, rows: slice, y: Field, west: Field) -> tuple[Field, Field]:
    """Return the eastward and northward wind at 850 hPa: wind belts plus eddies around lows."""
    height = len(flow)
    slope_scale = height * 0.28  # so that winds do not depend on the resolution
    centre = np.clip(np.arange(rows.start, rows.stop), 1, height - 2)  # the poles have one side
    slope_north = (flow[centre + 1] - flow[centre - 1]) * slope_scale
    here = flow[rows]
    slope_east = (np.roll(here, -1, axis=1) - np.roll(here, 1, axis=1)) * slope_scale
    belts = 9.0 * west - 7.0 * bump(y / 0.32)
    eddy_strength = 0.8 + 0.5 * west
    polar_factor = 1.0 - 0.8 * bump((np.abs(y) - 1.0) / 0.12)  # a fifth at the poles
    eastward = (belts - slope_north * eddy_strength) * polar_factor
    northward = slope_east * eddy_strength * polar_factor
    return eastward, northward
