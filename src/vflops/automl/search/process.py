"""Gaussian process regression of accuracies over distances; numpy alone.

exp(−d) of a metric d need not be positive definite, so the kernel is not taken of d itself. A point
x stands for its distances to the n points of the history, φ(x) = (d(x, h₁), …, d(x, hₙ)) / √n, and

    k(x, y) = 1 / (1 + ‖φ(x) − φ(y)‖² / ℓ²)

which is positive definite whatever d is, metric or not: 1/(1 + s) = ∫₀^∞ e^(−t) e^(−ts) dt, so k is
a mixture with positive weights of the kernels exp(−t ‖φ(x) − φ(y)‖² / ℓ²), and these, Gaussians
between points of Rⁿ, are positive definite (Schoenberg). Where d is a metric,
‖φ(x) − φ(y)‖ ≤ d(x, y): near architectures are near here too. The mixture holds all length scales
from ℓ on, and the square needs no root, which would magnify rounding between equal points.

Fitting and predicting use this one kernel. Equal points make its matrix singular; the noise, at
least the smallest of ``NOISES``, makes it regular again, and their accuracies are averaged.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import log, pi

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

LENGTHS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
"""Length scales that are tried, in medians of ‖φ(x) − φ(y)‖."""
NOISES = (1e-4, 1e-2, 1e-1, 0.5)
"""Variances of the noise that are tried, in variances of the accuracies."""
LEAST_SCALE = 0.01
"""A spread of accuracies below this counts as this: one model, or equal ones, do not make it 0."""


@dataclass(frozen=True)
class GaussianProcess:
    """What the history says of a point that was not tried."""

    embedded: Array
    length: float
    noise: float
    centre: float
    scale: float
    weights: Array
    whitening: Array
    likelihood: float

    def predict(self, distances: Array) -> tuple[Array, Array]:
        """Mean and standard deviation of the accuracy of points, given by their distances (q, n).

        A row holds a point's distances to those that the process was fitted to, in their order.
        """
        points = np.asarray(distances, dtype=np.float64) / np.sqrt(len(self.embedded))
        if points.ndim != 2 or points.shape[1] != len(self.embedded):
            raise ValueError(
                f"distances have the shape {points.shape}: expected (…, {len(self.embedded)})"
            )
        covariance = kernel(squares(points, self.embedded), self.length)
        mean = covariance @ self.weights
        explained = np.square(covariance @ self.whitening.T).sum(axis=1)
        std = np.sqrt(np.maximum(1 - explained, 0))
        return self.centre + self.scale * mean, self.scale * std


def fit(distances: Array, accuracies: Sequence[float]) -> GaussianProcess:
    """The process of the history: ``distances`` (n, n) among its points, and their accuracies.

    Length scale and noise are those of the grid with the greatest marginal likelihood.
    """
    distances = np.asarray(distances, dtype=np.float64)
    values = np.asarray(accuracies, dtype=np.float64)
    count = len(values)
    if count == 0 or distances.shape != (count, count):
        raise ValueError(
            f"distances have the shape {distances.shape}: expected ({count}, {count}), "
            "one row and column for each accuracy, and at least one"
        )
    if not (np.isfinite(distances).all() and np.isfinite(values).all()):
        raise ValueError("distances and accuracies must be finite numbers")
    embedded = distances / np.sqrt(count)
    centre, scale = float(values.mean()), max(float(values.std()), LEAST_SCALE)
    candidates = _fits(embedded, (values - centre) / scale)
    likelihood, length, noise, whitening, white = max(candidates, key=lambda each: each[0])
    return GaussianProcess(
        embedded, length, noise, centre, scale, whitening.T @ white, whitening, likelihood
    )


def _fits(embedded: Array, targets: Array) -> Iterator[tuple[float, float, float, Array, Array]]:
    """Log marginal likelihood, length, noise, L⁻¹ and L⁻¹y of the grid, where K = LLᵀ."""
    apart = squares(embedded, embedded)
    unit = _median(apart)
    for length in (unit * share for share in LENGTHS):
        covariance = kernel(apart, length)
        for noise in NOISES:
            root = np.linalg.cholesky(covariance + noise * np.eye(len(targets)))
            whitening = np.linalg.inv(root)
            white = whitening @ targets
            half = float(white @ white) / 2 + float(np.log(np.diag(root)).sum())
            likelihood = -half - len(targets) * log(2 * pi) / 2
            yield likelihood, length, noise, whitening, white


def kernel(apart: Array, length: float) -> Array:
    """The covariance of points whose embeddings are ``apart``, squared."""
    covariance: Array = 1 / (1 + apart / length**2)
    return covariance


def squares(a: Array, b: Array) -> Array:
    """Squared Euclidean distances of the rows of ``a`` to those of ``b``."""
    both = np.square(a).sum(axis=1)[:, None] + np.square(b).sum(axis=1)[None, :]
    apart: Array = np.maximum(both - 2 * (a @ b.T), 0)
    return apart


def _median(apart: Array) -> float:
    """The median distance between points that differ, or 1 where none do."""
    differing = apart[apart > 1e-12]
    return float(np.sqrt(np.median(differing))) if differing.size else 1.0
