"""Predicts the final accuracy of a model from its first epochs.

Models of the warm-up rounds train for few epochs. They are ranked by the curve
a · log2(epoch + b) + c, fitted to their accuracies by least squares and evaluated at a later epoch,
minus twice its root mean squared error: uncertain curves rank lower.

The curve has three parameters, but a model may stop after one epoch, so with few points fewer of
them are fitted:

    1, 2 points   none: the best accuracy so far is the prediction, without an error to subtract
    3 points      a and c, with b = 0: one point is left to estimate the error
    4 and more    a, b and c

A falling curve (a < 0) is replaced by a flat one: noise, or overfitting, is not a trend.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite, log2

import numpy as np
from numpy.typing import NDArray

OFFSETS = (0.0, *(2 ** (step / 2) for step in range(-4, 13)))
"""The values of b to try: 0, and ¼ to 64 in factors of √2."""


@dataclass(frozen=True)
class Prediction:
    """The accuracy at ``epoch``, predicted from ``points`` earlier ones."""

    value: float
    """a · log2(epoch + b) + c − 2 · rmse, clipped to 0 … 1."""
    epoch: int
    points: int
    a: float
    b: float
    c: float
    rmse: float | None
    """The error of the fit; None with too few points."""

    def error(self, truth: float) -> float:
        """Return how much too high the prediction was, given the true accuracy."""
        return self.value - truth


def predict(curve: Sequence[tuple[int, float]], epoch: int) -> Prediction:
    """Predict the accuracy at ``epoch`` from (epoch, accuracy) pairs; epochs count from 1."""
    if not curve:
        raise ValueError("the curve is empty: expected at least one point")
    for point_epoch, accuracy in curve:
        if point_epoch < 1 or not isfinite(accuracy):
            raise ValueError(
                f"epoch {point_epoch} has accuracy {accuracy}: "
                "expected an epoch of at least 1 and a finite accuracy"
            )
    if len(curve) < 3:
        best = max(accuracy for _, accuracy in curve)
        return Prediction(_clip(best), epoch, len(curve), 0.0, 0.0, best, None)
    epochs = np.array([point_epoch for point_epoch, _ in curve], dtype=np.float64)
    accuracies = np.array([accuracy for _, accuracy in curve], dtype=np.float64)
    offsets = OFFSETS if len(curve) > 3 else (0.0,)
    rmse, b, a, c = min(_fit(epochs, accuracies, offset) for offset in offsets)
    value = _clip(a * log2(epoch + b) + c - 2 * rmse)
    return Prediction(value, epoch, len(curve), a, b, c, rmse)


def _fit(
    epochs: NDArray[np.float64], accuracies: NDArray[np.float64], b: float
) -> tuple[float, float, float, float]:
    """Return RMSE, b, a and c of the best curve with this b and a ≥ 0."""
    x = np.log2(epochs + b)
    centred = x - x.mean()
    spread = float(centred @ centred)
    a = max(0.0, float(centred @ accuracies) / spread) if spread > 0 else 0.0
    c = float(accuracies.mean() - a * x.mean())
    rmse = float(np.sqrt(np.mean(np.square(a * x + c - accuracies))))
    return rmse, b, a, c


def _clip(value: float) -> float:
    return min(1.0, max(0.0, value))
