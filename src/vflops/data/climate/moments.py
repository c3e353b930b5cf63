"""Mean and variance of fields, channel by channel, in float64 and in one pass.

Rows are summed first, then frames, then years. So numbers of similar size are added, no precision
is lost over 10¹⁰ values, and the result does not depend on the pieces in which a file is read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vflops.data.climate.field_names import CHANNELS

PerChannel = NDArray[np.float64]

FILL = 1e20
"""Values from this size on mark missing data: 1e20 in CMIP files, 9.96921e36 in netCDF."""
_VARIES = np.array([name != "PRECT" for name in CHANNELS])
"""Channels that are never constant over a frame; rain may be 0 everywhere."""
_BAND_VALUES = 1 << 19
"""Number of values that are summed at a time, so that they stay in the cache."""


@dataclass(frozen=True)
class Moments:
    """Moments of one group of values or of an array of groups, all with the same ``count``."""

    count: int
    """Number of values per group and channel."""
    mean: NDArray[np.float64]
    squares: NDArray[np.float64]
    """Sum of squared deviations from the mean."""

    @property
    def std(self) -> NDArray[np.float64]:
        """The standard deviation of the population."""
        return np.sqrt(self.squares / self.count)

    @property
    def finite(self) -> NDArray[np.bool_]:
        """Whether all values of a group are finite: otherwise its moments are not."""
        return np.isfinite(self.mean) & np.isfinite(self.squares)

    @property
    def filled(self) -> NDArray[np.bool_]:
        """Whether a group contains fill values: one of them outweighs all real values."""
        with np.errstate(all="ignore"):
            return np.asarray(self.squares + self.count * self.mean**2 >= FILL**2)

    @property
    def flat(self) -> NDArray[np.bool_]:
        """Whether a channel of a frame (…, 16) is constant: its data was lost or never written."""
        return np.asarray((self.squares == 0) & _VARIES)

    @property
    def usable(self) -> NDArray[np.bool_]:
        """Whether all values of a channel of a frame (…, 16) are real data."""
        return self.finite & ~self.filled & ~self.flat

    def pooled(self, axis: int) -> Moments:
        """Merge the groups along ``axis`` (Chan, Golub and LeVeque's formula, equal counts)."""
        mean = self.mean.mean(axis=axis)
        difference = self.mean - np.expand_dims(mean, axis)
        squares = self.squares.sum(axis=axis) + self.count * (difference * difference).sum(
            axis=axis
        )
        return Moments(self.count * self.mean.shape[axis], mean, squares)

    def merged(self, other: Moments) -> Moments:
        """Merge two groups of any counts."""
        count = self.count + other.count
        difference = other.mean - self.mean
        mean = self.mean + difference * (other.count / count)
        squares = (
            self.squares
            + other.squares
            + difference * difference * (self.count * other.count / count)
        )
        return Moments(count, mean, squares)


def row_moments(fields: NDArray[np.floating[Any]]) -> Moments:
    """Return the moments of every row of ``fields`` (channels, rows, width): (channels, rows)."""
    channels, rows, width = fields.shape
    mean = np.empty((channels, rows))
    squares = np.empty((channels, rows))
    band_rows = max(1, _BAND_VALUES // (channels * width))
    for start in range(0, rows, band_rows):
        band = slice(start, start + band_rows)
        values = fields[:, band].astype(np.float64, order="C")
        with np.errstate(invalid="ignore", over="ignore"):  # an infinity shows in the result
            mean[:, band] = values.mean(axis=2)
            values -= mean[:, band, None]
            values *= values
            squares[:, band] = _row_sums(values.reshape(-1, width)).reshape(values.shape[:2])
    return Moments(width, mean, squares)


def _row_sums(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the sum of each row; the order of additions is the same on every machine.

    ``einsum`` and dot products add in the order that suits the vector unit of the CPU, with or
    without fused multiplication, so their last bits differ between CPUs. The order here is that of
    ``einsum`` with vectors of two numbers, four vectors at a time from last to first. Published
    fingerprints of data depend on it.
    """
    rows, width = values.shape
    if width % 2:
        values = np.concatenate([values, np.zeros((rows, 1))], axis=1)
    pairs = values.view(np.complex128)  # adds even and odd columns at the same time
    in_fours = width // 8 * 4
    sums = np.zeros(rows, np.complex128)
    for first in range(0, in_fours, 4):
        for pair in range(first + 3, first - 1, -1):
            sums += pairs[:, pair]
    for pair in range(in_fours, pairs.shape[1]):
        sums += pairs[:, pair]
    return np.asarray(sums.real + sums.imag)


def frame_moments(fields: NDArray[np.floating[Any]]) -> Moments:
    """Return the moments of ``fields`` (channels, height, width): (channels,)."""
    with np.errstate(invalid="ignore"):
        return row_moments(fields).pooled(1)
