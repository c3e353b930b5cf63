"""Forty small synthetic frames, drawn once, and checks that hold for all frames."""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

from vflops.data.climate.field_names import CHANNELS, CLASSES, MAX_BOXES
from vflops.data.climate.weather import RANGES, Frame, WeatherRecipe, draw

SMALL = WeatherRecipe(96, 144)
FRAMES = 40
Rows = NDArray[np.int32]


@cache
def frames() -> tuple[Frame, ...]:
    """Return the frames of 1979."""
    return tuple(draw(SMALL, 1979, number) for number in range(FRAMES))


@cache
def fields() -> NDArray[np.float64]:
    """Return the fields of all frames: (frames, channels, rows, columns)."""
    return np.stack([frame.fields for frame in frames()]).astype(np.float64)


def anomaly(name: str) -> NDArray[np.float64]:
    """Return the difference of a field from the mean of its latitude."""
    field = fields()[:, CHANNELS.index(name)]
    return np.asarray(field - field.mean(axis=(0, 2), keepdims=True))


def check_ranges(fields: NDArray[np.float64]) -> None:
    """Assert that every value is within the range of its channel."""
    assert np.isfinite(fields).all()
    for name in CHANNELS:
        least, most = RANGES[name]
        field = fields[..., CHANNELS.index(name), :, :]
        assert least <= field.min() and field.max() <= most, name


def check_boxes(boxes: Rows, height: int, width: int) -> None:
    """Assert that boxes have known classes, lie inside the frame, and are neither tiny nor many."""
    ymin, xmin, ymax, xmax, label = boxes.T
    assert len(boxes) <= MAX_BOXES
    assert (ymin >= 0).all() and (xmin >= 0).all()
    assert (ymax <= height).all() and (xmax <= width).all()
    assert (ymax - ymin >= 2).all() and (xmax - xmin >= 2).all()
    assert np.isin(label, range(len(CLASSES))).all()
