"""Random numbers and smooth noise that are the same on every machine."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vflops.data.sampler import mix

Field = NDArray[np.floating[Any]]
"""Always float32: Python floats do not widen it, although the type checker assumes so."""

_FINEST_PX = 4  # the smallest eddies: anything smaller would be grain, not weather
_BAND_PIXELS = 1 << 15  # pixels computed at a time, so that they fit the cache of a core
_UNIT = 3.4  # scales smoothed uniform numbers to a standard deviation of about 1


def generator(*seeds: int) -> np.random.Generator:
    """Return a generator for these seeds; ``random()`` is the same on every machine."""
    return np.random.Generator(np.random.Philox(key=[mix(*seeds), mix(*seeds, len(seeds))]))


def bands(height: int, width: int) -> Iterator[slice]:
    """Yield the rows of a field in bands whose values fit the cache of a core."""
    rows = max(1, _BAND_PIXELS // width)
    for first in range(0, height, rows):
        yield slice(first, min(first + rows, height))


class SmoothField:
    """A smooth field of which only a coarse grid is stored; rows are computed when needed."""

    def __init__(self, grid: Field, height: int, width: int) -> None:
        self._wide = _widened(grid, width)
        self._shape = height, width
        self._points, self._weights = _spline(len(grid), height, periodic=False)

    def rows(self, rows: slice) -> Field:
        """Return some rows of the field."""
        return _weighted_sum(self._wide, self._points[:, rows], self._weights[:, rows])

    def whole(self) -> Field:
        """Return all rows of the field."""
        return np.concatenate([self.rows(band) for band in bands(*self._shape)])


def noise(
    random: np.random.Generator, height: int, width: int, rows: int, roughness: float
) -> SmoothField:
    """Return eddies of ``height / rows`` pixels and smaller; mean 0, standard deviation about 1.

    An eddy of half the size is ``roughness`` times as strong.
    """
    return noises(random, 1, height, width, rows, roughness)[0]


def noises(
    random: np.random.Generator, count: int, height: int, width: int, rows: int, roughness: float
) -> tuple[SmoothField, ...]:
    """Return ``count`` fields of independent noise, drawn one after the other."""
    sizes = []
    while height >= rows * _FINEST_PX:
        sizes.append((rows, max(round(rows * width / height), 4)))
        rows *= 2
    uniform = random.random((count, sum(rows * columns for rows, columns in sizes)))
    drawn: Field = uniform.astype(np.float32) * 2.0 - 1.0
    grids: Field = np.zeros((count, 1, 1), np.float32)
    strength, first = 1.0, 0
    for rows, columns in sizes:
        octave = drawn[:, first : first + rows * columns].reshape(count, rows, columns)
        grids = np.stack([_resized(grid, rows, columns) for grid in grids]) + octave * strength
        first, strength = first + rows * columns, strength * roughness
    return tuple(SmoothField(grid * _UNIT, height, width) for grid in grids)


def _resized(grid: Field, height: int, width: int) -> Field:
    """Return a small ``grid`` smoothly enlarged; beyond the poles, the edge rows are repeated."""
    return SmoothField(grid, height, width).rows(slice(0, height))


def _widened(grid: Field, width: int) -> Field:
    """Return ``grid`` smoothly enlarged from west to east, around the globe."""
    points, weights = _spline(grid.shape[1], width, periodic=True)
    columns = np.ascontiguousarray(grid.T)  # whole columns are gathered faster than single values
    return np.ascontiguousarray(_weighted_sum(columns, points, weights).T)


def _weighted_sum(rows: Field, points: NDArray[np.intp], weights: Field) -> Field:
    """Return the sum of the four rows ``points[:, i]``, multiplied by ``weights[:, i]``, for all i.

    One scratch array serves all terms: allocating one for each takes longer than computing it.
    """
    total: Field = rows.take(points[0], axis=0)
    total *= weights[0, :, None]
    term = np.empty_like(total)
    for point, weight in zip(points[1:], weights[1:, :, None], strict=True):
        rows.take(point, axis=0, out=term, mode="clip")  # the mode that writes without a copy
        term *= weight
        total += term
    return total


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
