"""The colours of weather: water vapour from dry to moist, and a colour a class of event."""

from __future__ import annotations

import base64
import io
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from vflops.data.climate.field_names import CLASSES

LEVELS = 128
"""Of the colour map: more than an eye tells apart, and few enough for a small file."""
MOST_PICTURE_BYTES = 84_000
"""Of a PNG; a third more as text."""
_ANCHORS = "1c263d 243c5e 26557d 267198 2c8eac 47abb8 72c6c2 a7decb e0f2d7".split()
"""Dry navy over teal to a moist pale green: even steps of lightness in OKLCH, so equal
differences look equal, also in grey and to the colour-blind."""
_WIDTHS = (880, 720, 576, 448, 320, 224)


@dataclass(frozen=True)
class ClassStyle:
    """How a class of event is shown."""

    name: str
    short: str
    """On tags."""
    bright: str
    """On the dark map."""
    ink: str
    """The same hue on paper."""


STYLES = tuple(
    ClassStyle(name, short, bright, ink)
    for name, short, bright, ink in zip(
        CLASSES,
        ("TD", "TC", "ETC", "AR"),
        ("#ffbf3f", "#ff6257", "#d5a6ff", "#8cf06b"),
        ("#b97f00", "#c92a2a", "#7b3fb5", "#2f9e2f"),
        strict=True,
    )
)


def style(label: int) -> ClassStyle:
    """The style of class ``label``; a grey one where there is no such class."""
    if 0 <= label < len(STYLES):
        return STYLES[label]
    return ClassStyle(f"class {label}", f"#{label}", "#d0d4da", "#5c6470")


def palette() -> NDArray[np.uint8]:
    """The colours of water vapour, (LEVELS, 3) from dry to moist."""
    anchors = np.array([list(bytes.fromhex(each)) for each in _ANCHORS], dtype=np.float64)
    places = np.linspace(0, len(anchors) - 1, LEVELS)
    columns = [np.interp(places, range(len(anchors)), column) for column in anchors.T]
    found: NDArray[np.uint8] = np.rint(np.stack(columns, axis=1)).astype(np.uint8)
    return found


def resized(field: NDArray[np.float32], width: int, height: int) -> NDArray[np.float32]:
    """``field`` in another size, averaged where it shrinks and smooth where it grows."""
    image = Image.fromarray(np.nan_to_num(field.astype(np.float32)))
    return np.asarray(image.resize((width, height), Image.Resampling.BICUBIC), dtype=np.float32)


def levels(field: NDArray[np.float32], low: float, high: float) -> NDArray[np.uint8]:
    """The level of the colour map at each place."""
    scaled = (field.astype(np.float64) - low) / (high - low) * (LEVELS - 1)
    return np.rint(np.clip(scaled, 0, LEVELS - 1)).astype(np.uint8)


def picture(field: NDArray[np.float32], low: float, high: float) -> str:
    """``field`` as a data URI of a PNG twice as wide as high, as fine as the limit allows."""
    content = b""
    for width in _WIDTHS:
        content = _png(levels(resized(field, width, width // 2), low, high))
        if len(content) <= MOST_PICTURE_BYTES:
            break
    return data_uri(content)


def scale_picture() -> str:
    """The colour map as a strip from dry to moist."""
    return data_uri(_png(np.arange(LEVELS, dtype=np.uint8)[None, :]))


def data_uri(png: bytes) -> str:
    """A PNG as an address that holds it."""
    return f"data:image/png;base64,{base64.b64encode(png).decode()}"


def _png(indices: NDArray[np.uint8]) -> bytes:
    image = Image.fromarray(indices)
    image.putpalette(palette().tobytes())
    room = io.BytesIO()
    image.save(room, "PNG", optimize=True)
    return room.getvalue()
