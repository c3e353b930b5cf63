"""Forty small synthetic frames, drawn once, and what holds for any."""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

from vflops.data.climate.field_names import CHANNELS, CLASSES, MOST_BOXES
from vflops.data.climate.weather import RANGES, Frame, WeatherRecipe, draw

SMALL = WeatherRecipe(96, 144)
FRAMES = 40
Rows = NDArray[np.int32]


@cache
def frames() -> tuple[Frame, ...]:
    """Of 1979."""
    return tuple(draw(SMALL, 1979, number) for number in range(FRAMES))


@cache
def fields() -> NDArray[np.float64]:
    """(frames, channels, rows, columns)."""
    return np.stack([frame.fields for frame in frames()]).astype(np.float64)


def anomaly(name: str) -> NDArray[np.float64]:
    """How a field differs from the usual of its latitude."""
    field = fields()[:, CHANNELS.index(name)]
    return np.asarray(field - field.mean(axis=(0, 2), keepdims=True))


def check_ranges(fields: NDArray[np.float64]) -> None:
    """Every value is within its channel's range."""
    assert np.isfinite(fields).all()
    for name in CHANNELS:
        least, most = RANGES[name]
        field = fields[..., CHANNELS.index(name), :, :]
        assert least <= field.min() and field.max() <= most, name


def check_boxes(boxes: Rows, height: int, width: int) -> None:
    """Known classes, inside the frame, not too small, not too many."""
    ymin, xmin, ymax, xmax, label = boxes.T
    assert len(boxes) <= MOST_BOXES
    assert (ymin >= 0).all() and (xmin >= 0).all()
    assert (ymax <= height).all() and (xmax <= width).all()
    assert (ymax - ymin >= 2).all() and (xmax - xmin >= 2).all()
    assert np.isin(label, range(len(CLASSES))).all()
