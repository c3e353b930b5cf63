"""The colours of weather maps: water vapour from dry to moist, and one colour per class."""

from __future__ import annotations

import base64
import io
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from vflops.data.climate.field_names import CLASSES

LEVELS = 128
"""Levels of the colour map: more than the eye can tell apart, but few enough for small files."""
MAX_PICTURE_BYTES = 84_000
"""The largest size of a PNG; its base64 text is a third larger."""
_ANCHORS = "1c263d 243c5e 26557d 267198 2c8eac 47abb8 72c6c2 a7decb e0f2d7".split()
"""Navy (dry) over teal to pale green (moist): even steps of lightness in OKLCH, so that equal
differences look equal, also in grey and to colour-blind readers."""
_WIDTHS = (880, 720, 576, 448, 320, 224)


@dataclass(frozen=True)
class ClassStyle:
    """How a class of event is displayed."""

    name: str
    short: str
    """The abbreviation on labels."""
    bright: str
    """The colour on the dark map."""
    ink: str
    """The same hue for light backgrounds."""


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
    """Return the style of class ``label``; a grey one if the class is unknown."""
    if 0 <= label < len(STYLES):
        return STYLES[label]
    return ClassStyle(f"class {label}", f"#{label}", "#d0d4da", "#5c6470")


def palette() -> NDArray[np.uint8]:
    """Return the colours of water vapour from dry to moist, shape (LEVELS, 3)."""
    anchors = np.array([list(bytes.fromhex(code)) for code in _ANCHORS], dtype=np.float64)
    positions = np.linspace(0, len(anchors) - 1, LEVELS)
    columns = [np.interp(positions, range(len(anchors)), column) for column in anchors.T]
    colours: NDArray[np.uint8] = np.rint(np.stack(columns, axis=1)).astype(np.uint8)
    return colours


def resize(field: NDArray[np.float32], width: int, height: int) -> NDArray[np.float32]:
    """Return ``field`` resampled to another size."""
    image = Image.fromarray(np.nan_to_num(field.astype(np.float32)))
    return np.asarray(image.resize((width, height), Image.Resampling.BICUBIC), dtype=np.float32)


def colour_levels(field: NDArray[np.float32], low: float, high: float) -> NDArray[np.uint8]:
    """Return the level of the colour map at each grid point."""
    scaled = (field.astype(np.float64) - low) / (high - low) * (LEVELS - 1)
    return np.rint(np.clip(scaled, 0, LEVELS - 1)).astype(np.uint8)


def picture(field: NDArray[np.float32], low: float, high: float) -> str:
    """Return ``field`` as the data URI of a PNG, twice as wide as high, within the size limit."""
    content = b""
    for width in _WIDTHS:
        content = _png(colour_levels(resize(field, width, width // 2), low, high))
        if len(content) <= MAX_PICTURE_BYTES:
            break
    return data_uri(content)


def scale_picture() -> str:
    """Return the colour map as a horizontal strip from dry to moist."""
    return data_uri(_png(np.arange(LEVELS, dtype=np.uint8)[None, :]))


def data_uri(png: bytes) -> str:
    """Return a PNG as a data URI."""
    return f"data:image/png;base64,{base64.b64encode(png).decode()}"


def _png(indices: NDArray[np.uint8]) -> bytes:
    image = Image.fromarray(indices)
    image.putpalette(palette().tobytes())
    buffer = io.BytesIO()
    image.save(buffer, "PNG", optimize=True)
    return buffer.getvalue()
