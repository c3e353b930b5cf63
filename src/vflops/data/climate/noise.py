"""Random numbers and smooth noise that are the same on every machine."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vflops.data.sampler import mix

Field = NDArray[np.floating[Any]]
"""Always float32, which numbers of Python do not widen; the type checker thinks that they do."""

_FINEST_PX = 4  # the smallest eddies; what is smaller would be grain, not weather
_ROWS = 32  # made at once: a core's cache holds them
_UNIT = 3.4  # brings smoothed uniform numbers to a spread of one


def stream(*names: int) -> np.random.Generator:
    """Random numbers that belong to ``names``; ``random()`` is the same on every machine."""
    return np.random.Generator(np.random.Philox(key=[mix(*names), mix(*names, len(names))]))


def noise(
    chance: np.random.Generator, height: int, width: int, rows: int, roughness: float
) -> Field:
    """Eddies of ``height / rows`` pixels and smaller ones; mean 0, spread about 1.

    An eddy of half the size is ``roughness`` times as strong.
    """
    strength, total = 1.0, np.zeros((1, 1), np.float32)
    while height >= rows * _FINEST_PX:
        columns = max(round(rows * width / height), 4)
        drawn = chance.random((rows, columns)).astype(np.float32)
        total = _resized(total, rows, columns) + (drawn * 2.0 - 1.0) * strength
        rows, strength = rows * 2, strength * roughness
    return _resized(total * _UNIT, height, width)


def _resized(grid: Field, height: int, width: int) -> Field:
    """``grid`` smoothed to a larger size; its edge rows go on beyond the edge."""
    places, weights = _spline(grid.shape[1], width, round_the_globe=True)
    wide = grid[:, places[0]] * weights[0]
    for place, weight in zip(places[1:], weights[1:], strict=True):
        wide += grid[:, place] * weight
    places, weights = _spline(grid.shape[0], height, round_the_globe=False)
    out = np.empty((height, width), np.float32)
    for first in range(0, height, _ROWS):
        rows = slice(first, first + _ROWS)
        np.multiply(wide[places[0, rows]], weights[0, rows, None], out=out[rows])
        for place, weight in zip(places[1:, rows], weights[1:, rows, None], strict=True):
            out[rows] += wide[place] * weight
    return out


@lru_cache(maxsize=64)
def _spline(points: int, pixels: int, *, round_the_globe: bool) -> tuple[NDArray[np.intp], Field]:
    """Which four points make each pixel, and their weights: cubic B-splines."""
    place = (np.arange(pixels, dtype=np.float64) + 0.5) * points / pixels - 0.5
    first = np.floor(place)
    t = place - first
    s = 1.0 - t
    weights = np.stack(
        [
            s * s * s,
            4.0 - 6.0 * (t * t) + 3.0 * (t * t * t),
            4.0 - 6.0 * (s * s) + 3.0 * (s * s * s),
            t * t * t,
        ]
    )
    around = first.astype(np.intp) + np.arange(-1, 3, dtype=np.intp)[:, None]
    around = around % points if round_the_globe else np.clip(around, 0, points - 1)
    return around, (weights / 6.0).astype(np.float32)
