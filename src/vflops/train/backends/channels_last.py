"""Weights for frameworks whose images have shape (samples, height, width, channels)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def from_torch_layout(array: NDArray[Any], dtype: str) -> NDArray[Any]:
    """Return (out, in, height, width) as (height, width, in, out), (out, in) as (in, out)."""
    axes = {4: (2, 3, 1, 0), 2: (1, 0)}.get(array.ndim)
    return np.ascontiguousarray(array if axes is None else array.transpose(axes)).astype(dtype)


def to_torch_layout(array: NDArray[Any]) -> NDArray[Any]:
    """Return the inverse of ``from_torch_layout``."""
    axes = {4: (3, 2, 0, 1), 2: (1, 0)}.get(array.ndim)
    return np.ascontiguousarray(array if axes is None else array.transpose(axes))
