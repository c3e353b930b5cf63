"""Decode one image file completely, or report why it cannot be used."""

from __future__ import annotations

import io
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from PIL import Image

FORMATS = ("JPEG", "PNG", "WEBP")
"""Only these decoders are tried, which limits what a misnamed or hostile file can reach."""

EMPTY = "the file is empty"

_MAX_PIXELS = 1 << 27
"""Limit for a resized image: one that is a thousand times longer than wide would fill memory."""


class BadImage(Exception):
    """An image that cannot be used; ``reason`` says why."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def read_file(path: Path) -> bytes:
    """Return the bytes of a file; raise ``BadImage`` if it is empty or cannot be read."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise BadImage(error.strerror or str(error)) from error
    if not data:
        raise BadImage(EMPTY)
    return data


def decode(data: bytes) -> Image.Image:
    """Decode every pixel, without converting the mode; raise ``BadImage`` for a truncated file.

    The EXIF orientation is ignored, as in torchvision: the stored pixels are trained on.
    """
    from PIL import Image, UnidentifiedImageError

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # unusual EXIF or palettes; real damage raises
            image = Image.open(io.BytesIO(data), formats=FORMATS)
            image.load()
    except UnidentifiedImageError as error:
        raise BadImage("it is not a JPEG, PNG or WebP file") from error
    except Exception as error:  # decoders raise anything for a broken file
        raise BadImage(str(error) or type(error).__name__) from error
    return image


def stored_size(path: Path) -> tuple[int, int]:
    """Return width and height from the head of a file; raise ``BadImage`` if it has none."""
    from PIL import Image

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with Image.open(path, formats=FORMATS) as image:
                return image.size
    except Exception as error:  # decoders raise anything for a broken file
        raise BadImage(str(error) or type(error).__name__) from error


def pixels(data: bytes, short_side: int, *, enlarge: bool) -> NDArray[np.uint8]:
    """Decode to RGB, height × width × 3, with a shorter side of ``short_side`` pixels.

    Smaller images keep their size unless ``enlarge``. Pillow converts grey, CMYK and palette
    images; transparency is dropped, as in torchvision.
    """
    image = decode(data)
    size = resized_size(image.size, short_side, enlarge=enlarge)
    try:
        rgb = image if image.mode == "RGB" else _eight_bits(image).convert("RGB")
        return _resized(rgb, size)
    except (OSError, ValueError, MemoryError) as error:
        raise BadImage(f"cannot be made RGB from {image.mode}: {error}") from error


def rescaled(image: NDArray[np.uint8], short_side: int, *, enlarge: bool) -> NDArray[np.uint8]:
    """Return an RGB image scaled as ``pixels`` does."""
    from PIL import Image

    height, width, _ = image.shape
    size = resized_size((width, height), short_side, enlarge=enlarge)
    return image if size == (width, height) else _resized(Image.fromarray(image), size)


def _resized(rgb: Image.Image, size: tuple[int, int]) -> NDArray[np.uint8]:
    """Return the pixels at ``size``; the filter is bilinear over all source pixels."""
    import numpy as np
    from PIL import Image

    if rgb.size != size:
        rgb = rgb.resize(size, Image.Resampling.BILINEAR)
    return np.asarray(rgb, dtype=np.uint8)


def _eight_bits(image: Image.Image) -> Image.Image:
    """Return the upper 8 of 16 bits of grey, which Pillow would clip to white."""
    import numpy as np
    from PIL import Image

    if not image.mode.startswith("I"):
        return image
    return Image.fromarray((np.asarray(image).astype(np.uint32) >> 8).astype(np.uint8))


def resized_size(size: tuple[int, int], short_side: int, *, enlarge: bool) -> tuple[int, int]:
    """Return width and height with a shorter side of ``short_side``; the longer is truncated.

    A smaller image keeps its size unless ``enlarge``.
    """
    width, height = size
    if min(size) <= short_side and not enlarge:
        new = size
    elif width <= height:
        new = short_side, short_side * height // width
    else:
        new = short_side * width // height, short_side
    if new[0] * new[1] > _MAX_PIXELS:
        raise BadImage(f"{width} × {height} is too long and thin to resize to {new[0]} × {new[1]}")
    return new
