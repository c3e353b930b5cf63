"""Mean and spread of fields, channel by channel, in float64 and in one pass.

Rows are summed first, then frames, then all: so numbers of like size meet, nothing is lost over
10¹⁰ values, and the result does not depend on the pieces in which a file is read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vflops.data.climate.field_names import CHANNELS

PerChannel = NDArray[np.float64]

FILL = 1e20
"""From here on a value stands for none: 1e20 in CMIP's files, 9.96921e36 in netCDF's."""
_VARIES = np.array([name != "PRECT" for name in CHANNELS])
"""Channels that are never the same all over a frame; rain may fall nowhere."""


@dataclass(frozen=True)
class Moments:
    """Of some values, which may be an array of groups of them: all of equal ``count``."""

    count: int
    """Values of one group and channel."""
    mean: NDArray[np.float64]
    squares: NDArray[np.float64]
    """Sum of squared deviations from the mean."""

    @property
    def std(self) -> NDArray[np.float64]:
        """The standard deviation, of all values as they are: no sample of others."""
        return np.sqrt(self.squares / self.count)

    @property
    def finite(self) -> NDArray[np.bool_]:
        """Whether all values of a group are: one NaN or infinity makes its moments so too."""
        return np.isfinite(self.mean) & np.isfinite(self.squares)

    @property
    def filled(self) -> NDArray[np.bool_]:
        """Whether a group has fill values in it: one of them outweighs all that weather has."""
        with np.errstate(all="ignore"):
            return np.asarray(self.squares + self.count * self.mean**2 >= FILL**2)

    @property
    def flat(self) -> NDArray[np.bool_]:
        """Whether a frame (…, 16) has one value all over: lost, or never written."""
        return np.asarray((self.squares == 0) & _VARIES)

    @property
    def usable(self) -> NDArray[np.bool_]:
        """Whether all values of a frame (…, 16) are numbers that were measured."""
        return self.finite & ~self.filled & ~self.flat

    def pooled(self, axis: int) -> Moments:
        """The groups along ``axis`` as one (Chan, Golub and LeVeque's formula, equal counts)."""
        mean = self.mean.mean(axis=axis)
        apart = self.mean - np.expand_dims(mean, axis)
        squares = self.squares.sum(axis=axis) + self.count * (apart * apart).sum(axis=axis)
        return Moments(self.count * self.mean.shape[axis], mean, squares)

    def joined(self, other: Moments) -> Moments:
        """Both as one, of any counts."""
        count = self.count + other.count
        apart = other.mean - self.mean
        mean = self.mean + apart * (other.count / count)
        squares = self.squares + other.squares + apart * apart * (self.count * other.count / count)
        return Moments(count, mean, squares)


def of_rows(fields: NDArray[np.floating[Any]]) -> Moments:
    """Moments of every row of ``fields`` (channels, rows, width): arrays (channels, rows)."""
    channels, rows, width = fields.shape
    mean = np.empty((channels, rows))
    squares = np.empty((channels, rows))
    for channel in range(channels):  # one at a time, so that it stays in the cache
        values = fields[channel].astype(np.float64, order="C")
        with np.errstate(invalid="ignore"):  # an infinity is found by what comes out
            mean[channel] = values.mean(axis=1)
            values -= mean[channel][:, None]
            squares[channel] = np.einsum("rw,rw->r", values, values)
    return Moments(width, mean, squares)


def of_frame(fields: NDArray[np.floating[Any]]) -> Moments:
    """Moments of ``fields`` (channels, height, width): arrays (channels,)."""
    with np.errstate(invalid="ignore"):
        return of_rows(fields).pooled(1)
