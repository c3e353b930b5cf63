"""Draws digits of 8×8 pixels; the same seed gives the same digits."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

SIDE, CLASSES = 8, 10
_FONT = """
.##. ..#. ###. ###. #.#. #### .##. #### .##. .##.
#..# .##. ...# ...# #.#. #... #... ...# #..# #..#
#..# ..#. ..#. .##. #.#. ###. ###. ..#. .##. .###
#..# ..#. .#.. ...# #### ...# #..# .#.. #..# ...#
#..# ..#. #... ...# ..#. ...# #..# .#.. #..# ...#
.##. .### #### ###. ..#. ###. .##. .#.. .##. .##.
"""


def draw(count: int, seed: int, noise: float) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Return noisy images of digits at random positions, and the digits."""
    rows = [line.split() for line in _FONT.split("\n") if line]
    font = np.array([[[c == "#" for c in row[d]] for row in rows] for d in range(CLASSES)], float)
    height, width = font.shape[1:]
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, CLASSES, count)
    images = noise * rng.standard_normal((count, SIDE, SIDE))
    tops = rng.integers(0, SIDE - height + 1, count)
    lefts = rng.integers(0, SIDE - width + 1, count)
    for image, label, top, left in zip(images, labels, tops, lefts, strict=True):
        image[top : top + height, left : left + width] += font[label]
    return images.astype(np.float32), labels.astype(np.int64)
