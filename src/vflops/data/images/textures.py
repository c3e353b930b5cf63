"""Shapes and textures of synthetic images, as exact arithmetic on planes of pixels.

Only operations whose results IEEE 754 defines exactly (+ − × ÷ √, minimum, maximum, floor) are
used, so that every machine draws the same bytes; sines differ between mathematical libraries.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Plane = NDArray[np.floating[Any]]  # float32, one value per pixel: [images, rows, columns]
Shape = Callable[[Plane, Plane], Plane]  # (u, v) → distance to the edge, positive inside
Texture = Callable[[Plane, Plane], Plane]  # (u, v) in periods → brightness from 0 to 1

_PENTAGRAM = (  # unit normals of a star's five edges: cosines and sines of 90° + k · 72°
    (0.0, 1.0),
    (-0.9510565162951535, 0.3090169943749474),
    (-0.5877852522924731, -0.8090169943749475),
    (0.5877852522924731, -0.8090169943749475),
    (0.9510565162951535, 0.3090169943749474),
)


def _intersection(first: Plane, second: Plane) -> Plane:
    """Return the intersection of two shapes."""
    out: Plane = np.minimum(first, second)
    return out


def _union(first: Plane, second: Plane) -> Plane:
    """Return the union of two shapes."""
    out: Plane = np.maximum(first, second)
    return out


def _disc(u: Plane, v: Plane, radius: float, left: float = 0.0, down: float = 0.0) -> Plane:
    u, v = u - left, v - down
    return radius - np.sqrt(u * u + v * v)


def _box(
    u: Plane, v: Plane, width: float, height: float, left: float = 0.0, down: float = 0.0
) -> Plane:
    return _intersection(width - np.abs(u - left), height - np.abs(v - down))


def _square(u: Plane, v: Plane) -> Plane:
    return _box(u, v, 0.72, 0.72)


def _triangle(u: Plane, v: Plane) -> Plane:
    return _intersection(0.55 - v, 0.5 - np.abs(u) * 0.8660254037844386 + v * 0.5)


def _star(u: Plane, v: Plane) -> Plane:
    """Return the area inside at least four of five half-planes, by the second-smallest distance."""
    smallest = second = np.full_like(u, np.inf)
    for across, down in _PENTAGRAM:
        distance = 0.36 - (u * across + v * down)
        second = _intersection(second, _union(smallest, distance))
        smallest = _intersection(smallest, distance)
    return second


def _plus(u: Plane, v: Plane) -> Plane:
    return _union(_box(u, v, 0.95, 0.3), _box(u, v, 0.3, 0.95))


def _ring(u: Plane, v: Plane) -> Plane:
    return 0.24 - np.abs(_disc(u, v, 0.72))


def _crescent(u: Plane, v: Plane) -> Plane:
    return _intersection(_disc(u, v, 0.95), -_disc(u, v, 0.75, down=-0.5))


def _bow_tie(u: Plane, v: Plane) -> Plane:
    across = np.abs(u)
    return _intersection(0.9 - across, across * 0.85 + 0.08 - np.abs(v))


def _bar(u: Plane, v: Plane) -> Plane:
    return _box(u, v, 0.98, 0.34)


def _two_discs(u: Plane, v: Plane) -> Plane:
    return _disc(np.abs(u), v, 0.45, left=0.52)


def _corner(u: Plane, v: Plane) -> Plane:
    return _union(_box(u, v, 0.28, 0.85, left=-0.5), _box(u, v, 0.78, 0.28, down=0.57))


def _tee(u: Plane, v: Plane) -> Plane:
    return _union(_box(u, v, 0.85, 0.27, down=-0.55), _box(u, v, 0.27, 0.85))


def _frame(u: Plane, v: Plane) -> Plane:
    return 0.2 - np.abs(_box(u, v, 0.64, 0.64))


def _chevron(u: Plane, v: Plane) -> Plane:
    across = np.abs(u)
    return _intersection(0.9 - across, 0.32 - np.abs(v - across * 0.9 + 0.4))


def _half_disc(u: Plane, v: Plane) -> Plane:
    return _intersection(_disc(u, v, 0.98, down=-0.4), v + 0.4)


def _ladder(u: Plane, v: Plane) -> Plane:
    return _union(_box(np.abs(u), v, 0.22, 0.9, left=0.6), _box(u, v, 0.6, 0.22))


SHAPES: tuple[Shape, ...] = (
    lambda u, v: _disc(u, v, 0.8),
    _square,
    _triangle,
    _star,
    _plus,
    _ring,
    _crescent,
    _bow_tie,
    _bar,
    _two_discs,
    _corner,
    _tee,
    _frame,
    _chevron,
    _half_disc,
    _ladder,
)


def _wave(x: Plane) -> Plane:
    """Return a triangle wave of period 1, from −0.5 to 0.5."""
    out: Plane = np.abs(x - np.floor(x) - 0.5) * 2.0 - 0.5
    return out


def _contrast(x: Plane, gain: float) -> Plane:
    """Sharpen to 0 and 1 with a short ramp between them, so that no edge is jagged."""
    out: Plane = np.clip(x * gain + 0.5, 0.0, 1.0)
    return out


def _plain(u: Plane, _: Plane) -> Plane:
    return np.full_like(u, 0.6)


def _checks(u: Plane, v: Plane) -> Plane:
    return _contrast(_wave(u * 0.75) * _wave(v * 0.75), 14.0)


def _dots(u: Plane, v: Plane) -> Plane:
    return _contrast(_wave(u) + _wave(v) - 0.12, 4.0)


def _rings(u: Plane, v: Plane) -> Plane:
    return _contrast(_wave(np.sqrt(u * u + v * v)), 4.0)


def _quarters(u: Plane, v: Plane) -> Plane:
    return _contrast(u * v, 6.0)


def _mosaic(u: Plane, v: Plane) -> Plane:
    """Return square cells that are bright or dark by a hash of their position."""
    column = np.floor(u * 1.5).astype(np.int64).astype(np.uint32)
    row = np.floor(v * 1.5).astype(np.int64).astype(np.uint32)
    cell = column * np.uint32(0x9E3779B1) ^ row * np.uint32(0x85EBCA77)
    cell = (cell ^ (cell >> np.uint32(15))) * np.uint32(0x2C1B3C6D)
    bright: Plane = (cell >> np.uint32(31)).astype(np.float32)
    return bright


TEXTURES: tuple[Texture, ...] = (
    _plain,
    lambda u, _: _contrast(_wave(u), 4.0),
    lambda _, v: _contrast(_wave(v), 4.0),
    _checks,
    _dots,
    _rings,
    _quarters,
    _mosaic,
)
