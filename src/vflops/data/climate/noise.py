"""Random numbers and smooth noise that are the same on every machine."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vflops.data.sampler import mix

Field = NDArray[np.floating[Any]]
"""Always float32: Python floats do not widen it, although the type checker assumes so."""

_FINEST_PX = 4  # the smallest eddies: anything smaller would be grain, not weather
_ROWS = 32  # rows computed at a time, so that they fit the cache of a core
_UNIT = 3.4  # scales smoothed uniform numbers to a standard deviation of about 1


def generator(*seeds: int) -> np.random.Generator:
    """Return a generator for these seeds; ``random()`` is the same on every machine."""
    return np.random.Generator(np.random.Philox(key=[mix(*seeds), mix(*seeds, len(seeds))]))


def noise(
    random: np.random.Generator, height: int, width: int, rows: int, roughness: float
) -> Field:
    """Return eddies of ``height / rows`` pixels and smaller; mean 0, standard deviation about 1.

    An eddy of half the size is ``roughness`` times as strong.
    """
    strength, total = 1.0, np.zeros((1, 1), np.float32)
    while height >= rows * _FINEST_PX:
        columns = max(round(rows * width / height), 4)
        drawn = random.random((rows, columns)).astype(np.float32)
        total = _resized(total, rows, columns) + (drawn * 2.0 - 1.0) * strength
        rows, strength = rows * 2, strength * roughness
    return _resized(total * _UNIT, height, width)


def _resized(grid: Field, height: int, width: int) -> Field:
    """Return ``grid`` smoothly enlarged; beyond the poles, the edge rows are repeated."""
    points, weights = _spline(grid.shape[1], width, periodic=True)
    wide = grid[:, points[0]] * weights[0]
    for point, weight in zip(points[1:], weights[1:], strict=True):
        wide += grid[:, point] * weight
    points, weights = _spline(grid.shape[0], height, periodic=False)
    out = np.empty((height, width), np.float32)
    for first in range(0, height, _ROWS):
        rows = slice(first, first + _ROWS)
        np.multiply(wide[points[0, rows]], weights[0, rows, None], out=out[rows])
        for point, weight in zip(points[1:, rows], weights[1:, rows, None], strict=True):
            out[rows] += wide[point] * weight
    return out


@lru_cache(maxsize=64)
def _spline(points: int, pixels: int, *, periodic: bool) -> tuple[NDArray[np.intp], Field]:
    """Return the four points that contribute to each pixel, and their cubic B-spline weights."""
    position = (np.arange(pixels, dtype=np.float64) + 0.5) * points / pixels - 0.5
    first = np.floor(position)
    t = position - first
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
    around = around % points if periodic else np.clip(around, 0, points - 1)
    return around, (weights / 6.0).astype(np.float32)
