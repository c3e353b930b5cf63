"""Add storms to calm air: each changes a window of the fields, in place."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vflops.data.climate.background_fields import PA_PER_M, Eddies, bump, channel
from vflops.data.climate.noise import Field
from vflops.data.climate.storm_placement import Storm

_REACH = 1.65  # radius of a vortex; 1 is the edge of its box, where a quarter of it is left
_EYEWALL = 0.5  # where the wind is fastest, in the same unit
_SOFT = 1.5  # a filament fades out over this many half widths
_DISTORTION = 0.13  # how far eddies distort the shape of a storm

_Columns = slice | NDArray[np.intp]


@dataclass(frozen=True)
class _Patch:
    """What a storm adds to the pixels that it covers, relative to its maximum changes."""

    core: Field
    """Change of pressure, temperature and heights."""
    wet: Field
    """Change of water and rain."""
    east: Field
    north: Field
    """The wind, eastward and northward."""
    inflow: tuple[Field, Field]
    """The inward part of the wind near the ground, eastward and northward."""


def paint(fields: NDArray[np.float32], storm: Storm, eddies: Eddies) -> None:
    """Add one storm to the sixteen fields."""
    height, width = fields.shape[1:]
    box, margin = storm.box, 0.25 if storm.kind.shape == "filament" else _REACH / 2 - 0.5 + 0.15
    above = int((box.bottom - box.top) * margin) + 3
    beside = int((box.right - box.left) * margin) + 3
    rows = slice(max(box.top - above, 0), min(box.bottom + above, height))
    left, right = box.left - beside, box.right + beside
    columns: _Columns = slice(left, right)
    if left < 0 or right > width:
        columns = np.arange(left, right) % width  # around the globe
    dx = np.arange(left, right, dtype=np.float32) - storm.column
    dy = np.arange(rows.start, rows.stop, dtype=np.float32)[:, None] - storm.row
    draw_shape = _filament if storm.kind.shape == "filament" else _vortex
    patch = draw_shape(storm, dx, dy, eddies.moisture[rows, columns], eddies.gusts[rows, columns])
    _add(fields, storm, patch, rows, columns)


def _add(
    fields: NDArray[np.float32], storm: Storm, patch: _Patch, rows: slice, columns: _Columns
) -> None:
    def add(name: str, value: Field) -> None:
        channel(fields, name)[rows, columns] += value

    for name, span in storm.kind.change.items():
        change = storm.amount(span)
        increment = (patch.wet if name in ("TMQ", "PRECT", "QREFHT") else patch.core) * change
        add(name, increment)
        if name == "PSL":
            add("PS", increment)
            add("Z1000", increment / PA_PER_M)
        elif name == "TREFHT":
            add("TS", increment * 0.7)
    speed = storm.amount(storm.kind.wind)
    if speed:
        add("U850", patch.east * speed)
        add("V850", patch.north * speed)
        add("UBOT", (patch.east * 0.8 + patch.inflow[0]) * speed)
        add("VBOT", (patch.north * 0.8 + patch.inflow[1]) * speed)


def _vortex(storm: Storm, dx: Field, dy: Field, push_x: Field, push_y: Field) -> _Patch:
    x = dx / storm.wide + push_x * _DISTORTION
    y = dy * (storm.pole / storm.tall) + push_y * _DISTORTION  # mirrored in the south
    square = x * x + y * y
    rest = np.maximum(1.0 - square / (_REACH * _REACH), 0.0)
    core = rest * rest * rest
    turning = rest * rest * (2.0 / _EYEWALL) / (1.0 + square / (_EYEWALL * _EYEWALL))
    far = square / (square + 0.08)
    one_arm, two_arms = _spiral(
        x, y, square, 1.2 if storm.kind.shape == "comma" else 0.9 + storm.bend
    )
    if storm.kind.shape == "comma":
        arm = np.maximum(0.25 - one_arm, 0.0)
        wet = rest * rest * (arm * arm * far + 0.25 * rest)
        core = core * (1.0 - 0.6 * x)  # cold air comes in at the back, warm air at the front
    else:
        wet = core * (0.75 + 0.45 * two_arms * far)
    inward = turning * 0.25
    return _Patch(
        core=core,
        wet=wet,
        east=-y * turning,
        north=x * turning * float(storm.pole),
        inflow=(-x * inward, -y * inward * float(storm.pole)),
    )


def _spiral(x: Field, y: Field, square: Field, winding: float) -> tuple[Field, Field]:
    """Return two patterns from −1 to 1, with one and two spiral arms that trail a left turn.

    The single arm is where angle + 4·atan(winding · distance) is a full turn. Rational formulas
    replace trigonometric functions, which may differ in the last bit.
    """
    t = np.sqrt(square) * winding
    c, s = (1.0 - t * t) / (1.0 + t * t), 2.0 * t / (1.0 + t * t)
    c, s = c * c - s * s, 2.0 * c * s
    distance = np.sqrt(square + 1e-6)
    cosine = (x * c - y * s) / distance
    sine = (y * c + x * s) / distance
    return cosine, cosine * cosine - sine * sine


def _filament(storm: Storm, dx: Field, dy: Field, push_x: Field, push_y: Field) -> _Patch:
    wide, tall = storm.wide, storm.tall * storm.pole
    square = wide * wide + tall * tall
    half = math.sqrt(square)
    dx = dx + push_x * (storm.thin * 2.0 * _DISTORTION)
    dy = dy + push_y * (storm.thin * 2.0 * _DISTORTION)
    along = (dx * wide + dy * tall) / square
    aside = (dy * wide - dx * tall) * (storm.pole / square)
    slope = along * (-2.0 * storm.bend)
    length = np.sqrt(1.0 + slope * slope)
    away = (aside - storm.bend * (1.0 - along * along)) * half / length
    ends = np.maximum(1.0 - along * along * along * along, 0.0)
    core = bump(away / (storm.thin * _SOFT)) * ends
    windy = bump(away / (storm.thin * _SOFT * 1.3)) * ends / (length * half)
    no_inflow = np.zeros((1, 1), np.float32)
    return _Patch(
        core=core,
        wet=core,
        east=windy * (wide - slope * (tall * storm.pole)),
        north=windy * (tall + slope * (wide * storm.pole)),
        inflow=(no_inflow, no_inflow),
    )
