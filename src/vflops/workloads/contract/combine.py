"""Functions that combine the predictions of several models; they need numpy only."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def mean(predictions: Sequence[NDArray[np.float32]]) -> NDArray[np.float32]:
    """Return the mean over the models.

    For class probabilities this is the averaging of HPC AI500 V3.0.
    """
    # Double precision, so that the order of models does not matter.
    total = np.zeros_like(predictions[0], dtype=np.float64)
    for prediction in predictions:
        total += prediction
    return (total / len(predictions)).astype(np.float32)
