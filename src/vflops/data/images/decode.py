"""One image from its file: all of its pixels, or the reason why not."""

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
"""Only these decoders are tried: fewer ways in for a file that is not what its name says."""

EMPTY = "the file is empty"

_MAX_PIXELS = 1 << 27
"""Of a resized image; one that is a thousand times longer than wide would fill the memory."""


class BadImage(Exception):
    """An image that cannot be used; ``reason`` says why."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def read_file(path: Path) -> bytes:
    """All bytes of a file that is not empty."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise BadImage(error.strerror or str(error)) from error
    if not data:
        raise BadImage(EMPTY)
    return data


def decode(data: bytes) -> Image.Image:
    """The whole image in its own mode; every pixel is decoded, a truncated file is refused.

    Orientation in EXIF is ignored, as torchvision does: what is trained on is what is stored.
    """
    from PIL import Image, UnidentifiedImageError

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # odd EXIF or palettes; what matters raises
            image = Image.open(io.BytesIO(data), formats=FORMATS)
            image.load()
    except UnidentifiedImageError as error:
        raise BadImage("it is not a JPEG, PNG or WebP file") from error
    except Exception as error:  # decoders raise whatever a broken file makes them
        raise BadImage(str(error) or type(error).__name__) from error
    return image


def pixels(data: bytes, short_side: int) -> NDArray[np.uint8]:
    """The image as RGB, height × width × 3, its shorter side ``short_side`` pixels.

    Smaller images are enlarged, as the published pipeline does. Grey, CMYK and palettes are
    converted by Pillow, transparency is dropped as torchvision does; the filter is bilinear over
    all source pixels.
    """
    import numpy as np
    from PIL import Image

    image = decode(data)
    size = resized(image.size, short_side)
    try:
        rgb = image if image.mode == "RGB" else _eight_bits(image).convert("RGB")
        if rgb.size != size:
            rgb = rgb.resize(size, Image.Resampling.BILINEAR)
    except (OSError, ValueError, MemoryError) as error:
        raise BadImage(f"cannot be made RGB from {image.mode}: {error}") from error
    return np.asarray(rgb, dtype=np.uint8)


def _eight_bits(image: Image.Image) -> Image.Image:
    """Grey of 16 bits by its upper 8, as Pillow does for colours; it would cut this to white."""
    import numpy as np
    from PIL import Image

    if not image.mode.startswith("I"):
        return image
    return Image.fromarray((np.asarray(image).astype(np.uint32) >> 8).astype(np.uint8))


def resized(size: tuple[int, int], short_side: int) -> tuple[int, int]:
    """Width and height whose shorter one is ``short_side``; the longer is cut to whole pixels."""
    width, height = size
    if width <= height:
        new = short_side, short_side * height // width
    else:
        new = short_side * width // height, short_side
    if new[0] * new[1] > _MAX_PIXELS:
        raise BadImage(f"{width} × {height} is too long and thin to resize to {new[0]} × {new[1]}")
    return new
